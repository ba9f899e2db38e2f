"""What turns of conversation show, one by one and by the batch; word pieces as the model's own tokenizer cuts them."""

import numpy as np
import pytest
import Stemmer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.minilm import minilm_cache
from support.recall import recorded
from support.strategies import entries
from tokenizers import Tokenizer

from crew_journal.consumers.entries.turns_fold import batch_turns
from crew_journal.consumers.folds import words as words_met
from crew_journal.consumers.projection import Batch
from crew_journal.schemas.catalogue import info_of
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.errors import FoldError
from crew_journal.schemas.core.timestamps import DAY_MS
from crew_journal.schemas.decode import decode
from crew_journal.schemas.recall.turns import (
    FIRST_PERSON,
    INSTRUCTION,
    MAX_WORDS,
    QUESTION,
    TIME,
    TURN,
    ends_with_question,
    instructs,
    intervals_of,
    is_users,
    meanings_of,
    question_of,
)
from crew_journal.schemas.text.analyzer import STOP_WORDS, Analyzer, strings_in, tokens_of
from crew_journal.schemas.text.dates import days_from_civil
from crew_journal.schemas.text.languages import language_of, languages
from crew_journal.schemas.text.vocabulary import SIZE, vocabulary
from crew_journal.schemas.text.word_pieces import PASSAGE_WORDS, PASSAGES, pieces_of


def flags_of(text: str) -> int:
    columns = batch_turns(Batch([recorded(1, text)], 1, 1))
    assert columns is not None
    return int(columns["flags"][0])


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("I went to the market", FIRST_PERSON),
        ("Our dog is great", FIRST_PERSON),
        ("She painted it yesterday", 0),
        ("What did you do?", QUESTION),
        ("What is that? [image: a red door]", QUESTION),
        ("Ich habe das nicht gesagt", FIRST_PERSON),
        ("She moved in May", 0),
        ("Am die Under", 0),
        ("Why? Nobody knows", 0),
        ("ok", 0),
    ],
)
def test_a_turn_shows_its_features_in_its_own_language(text: str, flags: int) -> None:
    assert flags_of(text) == flags | TURN


def test_a_words_meaning_depends_on_the_language() -> None:
    english, german = languages()
    assert language_of(tokens_of("der Hund ist nicht im Haus")) is german
    assert language_of(tokens_of("the dog is not in the house")) is english
    assert language_of([]) is english


@pytest.mark.parametrize(
    ("query", "asks"),
    [
        ("What did I say about rent?", "first_person"),
        ("Was habe ich über die Miete gesagt?", "first_person"),
        ("What did you recommend for my knee?", "asks_assistant"),
        ("Was hast du mir empfohlen?", "asks_assistant"),
        ("Can you remind me which trail you recommended?", "asks_assistant"),
        ("Could you please tell me again what you said about my knee?", "asks_assistant"),
        ("Kannst du mir sagen, welchen Weg du empfohlen hast?", "asks_assistant"),
        ("I am looking back at our previous conversation about glue. Which one dries fastest?", "asks_assistant"),
    ],
)
def test_a_query_asks_for_what_it_says(query: str, asks: str) -> None:
    assert getattr(question_of(query), asks)


@pytest.mark.parametrize(
    "query",
    [
        "Can you suggest a film?",
        "Could you please recommend a film to me?",
        "What do you suggest?",
        "Kannst du mir einen Film empfehlen?",
        "In our last conversation, which budget did I name?",
        "Who sings?",
    ],
)
def test_a_request_is_no_question_about_the_assistant(query: str) -> None:
    assert not question_of(query).asks_assistant


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("What did I say yesterday?", 20, 20),
        ("Was habe ich gestern gesagt?", 20, 20),
        ("What did I say last week?", 9, 15),
        ("Was habe ich letzte Woche gesagt?", 9, 15),
        ("Where did we eat two days ago?", 19, 19),
        ("Wo waren wir vor zwei Tagen?", 19, 19),
        ("Who called on Friday?", 20, 20),
        ("Was ist am Freitag passiert?", 20, 20),
    ],
)
def test_relative_dates_of_a_query_count_from_the_day_it_is_asked_on(query: str, first: int, last: int) -> None:
    """By the rule of entries: Saturday, 21 November 2026."""
    month = days_from_civil(2026, 11, 1) - 1
    assert question_of(query, month + 21).days == ((month + first, month + last),)
    assert question_of(query).days == (), "asked who knows when, it names no day"


def test_a_date_with_a_year_names_the_same_day_whenever_it_is_asked() -> None:
    asked = "What happened on 3 August 2023?"
    assert question_of(asked, 0).days == question_of(asked, 20_000).days == question_of(asked).days != ()


@pytest.mark.parametrize(
    ("entry_type", "actor_type", "actor_id", "users"),
    [
        ("peer.conversation", "user", "Maria", True),
        ("peer.conversation", "agent", "ada", False),
        ("peer.conversation", "user", "assistant", False),
        ("message.sent", "user", "Assistant", False),
        ("peer.conversation", "agent", "user", True),
        ("peer.conversation", "user", None, True),
        ("chat.user_message", "agent", None, True),
        ("chat.agent_response", "user", "Maria", False),
        ("chat.user_message", "user", "bot", False),
    ],
)
def test_the_speaker_of_a_turn_follows_from_actor_name_entry_type_and_actor_type(
    entry_type: str, actor_type: str, actor_id: str | None, users: bool
) -> None:
    assert is_users(entry_type, actor_type, actor_id) is users


def recorded_entries() -> st.SearchStrategy[list[EntryRecorded]]:
    def read(messages: list) -> list[EntryRecorded]:
        found = []
        for seq, message in enumerate(messages, 1):
            try:
                event = decode(seq, message.subject, message.headers, message.body, 0)
            except FoldError:
                continue
            if isinstance(event, EntryRecorded):
                found.append(event)
        return found

    return st.lists(entries(), max_size=12).map(read)


@settings(max_examples=max(3, settings.default.max_examples // 3), suppress_health_check=list(HealthCheck))
@given(recorded_entries())
def test_a_batch_of_turns_says_what_each_turn_says_by_itself(events: list[EntryRecorded]) -> None:
    columns = batch_turns(Batch(events, 1, 99))
    turns = [event for event in events if info_of(event.entry.entry_type).conversation]
    assert (columns is None) == (not turns)
    for at, event in enumerate(turns):
        assert columns is not None
        words = tokens_of(" ".join((event.entry.summary, *strings_in(event.entry.payload))))[:MAX_WORDS]
        language = language_of(words)
        flags = TURN | (QUESTION if ends_with_question(event.entry.summary) else 0)
        flags |= INSTRUCTION if instructs(event.entry.summary) else 0
        for word in words:
            flags |= meanings_of(word)[languages().index(language)].flags
        begin, end = ([0, *columns["piece_ends"]][at], columns["piece_ends"][at])
        first_day, last_day = ([0, *columns["day_ends"]][at], columns["day_ends"][at])
        dated = flags & TIME
        days = intervals_of(event.entry.summary, event.ts_ms // DAY_MS, language) if dated else []
        flags &= ~TIME
        pieces = [piece for word in words[: PASSAGE_WORDS * PASSAGES] for piece in pieces_of(word)]
        first = sum(len(pieces_of(word)) for word in words[:PASSAGE_WORDS])
        assert int(columns["doc"][at]) == event.seq
        assert int(columns["flags"][at]) == flags
        assert columns["pieces"][begin:end].tolist() == pieces
        assert int(columns["first_passage"][at]) == first
        assert [tuple(day) for day in columns["days"][first_day:last_day].tolist()] == days


def test_word_pieces_are_those_of_the_models_tokenizer() -> None:
    tokenizer = Tokenizer.from_file(str(minilm_cache() / "all-MiniLM-L6-v2" / "tokenizer.json"))
    tokenizer.no_padding()
    assert dict(vocabulary()) == tokenizer.get_vocab()
    assert len(vocabulary()) == SIZE
    texts = [
        "Caroline painted unbelievably beautiful watercolours",
        "naïve café über 2023 x1y2",
        "日本語 text Größenordnung",
    ]
    for text in texts:
        words = [word for word in tokens_of(text) if word not in STOP_WORDS]
        ours = [piece for word in words for piece in pieces_of(word)]
        theirs = tokenizer.encode(" ".join(words), add_special_tokens=False).ids
        assert ours == [piece for piece in theirs if piece != vocabulary()["[UNK]"]]


def test_stop_words_and_what_the_vocabulary_cannot_write_have_no_pieces() -> None:
    assert pieces_of("the") == pieces_of("🦜") == pieces_of("x" * 101) == ()
    assert np.all(np.array(pieces_of("memory")) < SIZE)


def test_words_that_were_forgotten_say_the_same_when_they_are_met_again(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [[f"word{n}", "gestern", "the", "we", "painting", "42", f"übermorgen{n}"] for n in range(6)]
    analyzer = Analyzer(Stemmer.Stemmer)
    monkeypatch.setattr(words_met, "WORDS_KEPT", 15)
    former = None
    for words in batches * 2:
        known = words_met.KnownWords(words)
        assert known.keys.tolist() == analyzer.keys_of(words)
        for chosen in ([0, 3], range(len(words))):  # some of them have stood in turns before, some have not
            facts = known.in_turns(np.array(chosen))
            for place, word in enumerate(words[at] for at in chosen):
                assert_says(facts, place, word)
        if former is not None:  # what was looked up before others were learned, or all were forgotten, is still right
            assert_says(former.in_turns(np.array([4])), 0, "painting")
        former = known


def test_long_words_are_forgotten_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words_met._Memory, "words", None)
    monkeypatch.setattr(words_met, "CHARS_KEPT", 1_000)
    for n in range(20):
        words_met.KnownWords(["f" * 200 + str(n), "tea"])
        memory = words_met._Memory.words
        assert memory is not None
        assert sum(map(len, memory.numbers)) < 1_300


def test_more_words_than_a_column_first_has_room_for_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words_met._Memory, "words", None)
    known = words_met.KnownWords([f"tea{n}" for n in range(3_000)])
    facts = known.in_turns(np.arange(3_000))
    for place in (0, 1_500, 2_999):
        assert_says(facts, place, f"tea{place}")


def assert_says(facts: words_met.WordColumns, place: int, word: str) -> None:
    start, size = int(facts.starts[place]), int(facts.sizes[place])
    assert tuple(facts.pieces[start : start + size].tolist()) == pieces_of(word)
    said = meanings_of(word)
    assert facts.function[place].tolist() == [one.function for one in said]
    assert facts.flags[place].tolist() == [one.flags for one in said]


@pytest.mark.parametrize(
    ("text", "standing"),
    [
        ("Always format code with syntax highlighting when I ask about implementation details.", True),
        ("I prefer simple, minimal dependencies.", True),
        ("From now on, write dates as 3 May.", True),
        ("Nenne immer die Quelle, wenn ich nach Zahlen frage.", True),
        ("Ab jetzt bitte alles auf Deutsch.", True),
        ("He always takes the early train.", False),
        ("Ask me if you never got the parcel.", False),
        ("Ich war nie in Bern.", False),
    ],
)
def test_a_standing_instruction_or_preference_is_recognised(text: str, standing: bool) -> None:
    assert instructs(text) is standing
