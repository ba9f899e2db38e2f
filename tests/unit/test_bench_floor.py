"""The questions that weigh the floor of late interaction by itself mean a line of the chat, in other words."""

from support.recall import ANALYZER

from bench.floor import PARAPHRASES, chat_records
from bench.quality_index import lines_of


def test_a_paraphrase_names_a_line_of_the_chat_and_shares_no_term_with_any() -> None:
    chat = {str(record["id"]): set(ANALYZER.terms(str(record["summary"]))) for record in chat_records()}
    asked = lines_of(PARAPHRASES)
    assert (len(chat), len(asked)) == (60, 14)
    said = set().union(*chat.values())
    for one in asked:
        assert f"chat-{one['line']}" in chat
        assert not said & set(ANALYZER.terms(one["query"])), one["query"]


def test_the_chat_keeps_its_speakers_and_knows_the_assistant() -> None:
    records = chat_records()
    assert {record["actor_id"] for record in records} == {"Nora", "Ben", "User", "Assistant", "Tom", "Lena"}
    assert {record["actor_type"] for record in records if record["actor_id"] == "Assistant"} == {"agent"}
    assert all(": " not in str(record["summary"])[:12] for record in records[:4])
