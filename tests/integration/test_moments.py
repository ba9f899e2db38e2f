"""What somebody knew at two moments, which event changed a recall, and recalls run again with something changed."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.embedding import until
from support.fed_node import PAST, caught_past, check_moments
from support.lived_year import MINILM, Year, lived_year
from support.two_models import RED

from crew_journal.schemas.core.errors import InvalidQuery, NotAllowed, NotFound
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.lineage.operations import ALL_FAMILIES, DiffAnswer
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.runtime.past import PastViews

STEPS, FULL_STEPS = 48, 600
PAIRS, FULL_PAIRS = 2, 500
MOMENTS, FULL_MOMENTS = 3, 40
PLANTED, FULL_PLANTED = 1, 12
"""Rounds of the nine planted events."""
BY_MEANING = (
    ("Kittens sleep on sofas", "the cats and the couch"),
    ("Doctors work in hospitals", "the physicians and the clinic"),
    ("Bakers sell bread", "the loaves and the pastry shop"),
    ("Teachers grade exams", "the school and the tests of pupils"),
    ("Pilots fly jets", "the airplane and the captain"),
    ("Guitarists play songs", "the melody and the musician"),
    ("Snow covers mountains", "the winter and the alpine peaks"),
    ("Judges sentence thieves", "the court and the criminals"),
    ("Farmers milk cows", "the dairy and the cattle"),
    ("Dentists pull teeth", "the molar and the oral surgery"),
    ("Astronomers watch stars", "the telescope and the night sky"),
    ("Goalkeepers catch balls", "the soccer match and the keeper"),
)
"""A text, and a query without a word of it: the red model, which knows words alone, ranks the notes of the year above it."""
ALL = 100_000
Known = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def started() -> Iterator[list[PastViews]]:
    with caught_past() as views:
        yield views


@pytest.fixture(scope="module")
async def year(tmp_path_factory: pytest.TempPathFactory, started: list[PastViews]) -> AsyncIterator[Year]:
    async with lived_year(tmp_path_factory.mktemp("year"), STEPS) as lived:
        yield lived


@pytest.fixture
def past(year: Year, started: list[PastViews]) -> PastViews:
    """The past views of the year's node."""
    return started[0]


def known_of(answer: DiffAnswer) -> Known:
    """What is known at ``until``, of a difference since the beginning."""
    return {(family.family, one.key): one.item for family in answer.families for one in family.added}


def applied(known: Known, answer: DiffAnswer) -> Known:
    result = dict(known)
    for family in answer.families:
        for gone in family.ceased:
            assert result.pop((family.family, gone.key)) == gone.item
        for added in family.added:
            assert (family.family, added.key) not in result
            result[family.family, added.key] = added.item
        for changed in family.changed:
            assert result[family.family, changed.key] == changed.before
            result[family.family, changed.key] = changed.after
    return result


async def check_law(year: Year, moments: int, pairs: int) -> set[str]:
    """The law on random pairs of moments, for the workspace, an agent's token and a crew; returns what was seen."""
    subjects: list[tuple[AsyncCrewJournal, dict[str, Any]]] = [
        (year.owner, {}),
        (year.ada, {}),
        (year.owner, {"crew_id": "red"}),
        (year.owner, {"agent_id": "eve", "scope": "own"}),
    ]
    chosen = year.seqs[len(year.seqs) // 4 :: len(year.seqs) // moments]
    known = {
        (seq, number): known_of(await who.diff("0", until=str(seq), limit=ALL, **of))
        for seq in chosen
        for number, (who, of) in enumerate(subjects)
    }
    assert len(set(map(len, known.values()))) > len(subjects)
    seen = set()
    drawn = [sorted(year.draw.sample(chosen, 2)) for _ in range(pairs)]
    for first, second in sorted(drawn):  # so that the view of the first moment is folded once for all its pairs
        for number, (who, of) in enumerate(subjects):
            answer = await who.diff(str(first), until=str(second), limit=ALL, **of)
            assert (answer.since_seq, answer.until_seq) == (first, second)
            assert applied(known[first, number], answer) == known[second, number]
            for family in answer.families:
                seen |= {f"{family.family} added"} if family.added else set()
                seen |= {f"{family.family} changed"} if family.changed else set()
                seen |= {gone.why for gone in family.ceased}
    return seen


async def check_operations(year: Year, past: PastViews, folder: Path, moments: int) -> None:
    """All operations as of random moments, as an OWNER and as an agent."""
    principals = [
        Principal(token_id="owner", role=Role.OWNER, workspace_id=None),
        Principal(token_id="t", role=Role.AGENT, workspace_id="default", agent_id="ada", crew_id="red"),
    ]
    seqs = year.draw.sample(range(20, await year.head()), moments)
    queries = [f"where is the {' and the '.join(year.words(2))}?" for _ in range(moments)]
    asked, answered = await check_moments(past, folder, seqs, year.draw, principals, "default", queries)
    assert asked == moments * len(PAST) * len(principals)
    assert answered > asked / 2


async def test_every_operation_as_of_a_moment_answers_like_a_node_fed_up_to_it(
    year: Year, past: PastViews, tmp_path: Path
) -> None:
    await check_operations(year, past, tmp_path, 1)


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
async def test_every_operation_as_of_50_moments_of_a_long_year(tmp_path: Path) -> None:
    with caught_past() as started:
        async with lived_year(tmp_path / "year", FULL_STEPS) as lived:
            await check_operations(lived, started[0], tmp_path, 50)


async def test_a_difference_applied_to_the_first_moment_gives_the_second(year: Year) -> None:
    seen = await check_law(year, MOMENTS, PAIRS)
    assert "entries added" in seen
    assert len(seen & {"superseded", "corrected", "retracted", "ended", "deleted", "documents changed"}) >= 2, seen


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
async def test_the_law_of_differences_on_500_pairs(tmp_path: Path) -> None:
    async with lived_year(tmp_path, FULL_STEPS) as lived:
        await check_law(lived, FULL_MOMENTS, FULL_PAIRS)


async def test_a_difference_names_what_came_changed_and_ceased_and_why(year: Year) -> None:
    owner = year.owner
    old = await year.note(agent_id="ada", crew_id="red")
    wrong = await year.note(agent_id="ada", crew_id="red")
    doomed = await year.note(agent_id="ada", crew_id="red")
    await owner.document_write("AGENT", "replace", "Likes tea.\n", agent_id="ada")
    await owner.kg_add("gate", "has_code", "1111")
    drawer = await owner.add_drawer("yard", "gate", "The gate has two keys")
    since = await year.head()
    new = await year.note(supersedes=[old], agent_id="ada", crew_id="red")
    await owner.retract(wrong, "it was wrong")
    await owner.set_priority(new, "pin", "it matters")
    await year.erase_id(doomed)
    await owner.document_write("AGENT", "append", "Likes cake.\n", agent_id="ada")
    await owner.kg_invalidate("gate", "has_code", "1111", ended="2026-01-05")
    await owner.delete_drawer(drawer.drawer_id)
    lesson = await owner.add_lesson("Lock the gate", agent_id="ada")
    until = await year.head()
    for name in (old, wrong, doomed):
        year.notes.pop(name, None)
    answer = await owner.diff(str(since), until=str(until), limit=ALL)
    families = {family.family: family for family in answer.families}
    assert tuple(families) == ALL_FAMILIES
    entries = families["entries"]
    assert {one.key: one.item["priority"] for one in entries.added}.get(new) == "pin"
    assert {one.key: (one.why, one.by) for one in entries.ceased} == {
        old: ("superseded", new),
        wrong: ("retracted", None),
    }
    [changed] = families["documents"].changed
    assert (changed.key, changed.before["content"]) == ("a-ada/AGENT.md", "Likes tea.\n")
    assert changed.after["content"] == "Likes tea.\nLikes cake.\n"
    assert [(one.item["object"], one.why) for one in families["facts"].ceased] == [("1111", "ended")]
    assert [(one.key, one.why) for one in families["drawers"].ceased] == [(drawer.drawer_id, "deleted")]
    assert [one.key for one in families["lessons"].added] == [f"a-ada/{lesson.lesson_id}"]
    assert [one.messages > 0 for one in answer.erased] == [True]
    assert doomed not in {one.key for one in entries.added} | {one.key for one in entries.ceased}
    of_ada = await year.ada.diff(str(since), until=str(until), limit=ALL)
    assert {one.key for family in of_ada.families for one in family.ceased} >= {old, wrong}
    assert of_ada.erased == ()
    with pytest.raises(NotAllowed):
        await year.ada.diff(str(since), agent_id="eve")
    with pytest.raises(InvalidQuery, match="since"):
        await owner.diff(str(until), until=str(since))
    with pytest.raises(InvalidQuery, match="since"):
        await owner.diff("tomorrow")


# bisect


@dataclass(frozen=True, slots=True)
class Plant:
    """An event that changes a recall: asked how, of which hit, and between which heads the event lies."""

    asked: Mapping[str, Any]
    before: int
    after: int
    whys: tuple[str, ...]


async def planted(year: Year, lives: bool, asked: Mapping[str, Any], act: Awaitable[Any], *whys: str) -> Plant:
    before = await year.head()
    await act
    after = await year.head()
    if lives:
        await year.live(2, of=1)
    return Plant(asked, before, after, whys)


async def plant_all(year: Year, number: int) -> AsyncIterator[Plant]:
    """One event of each kind, each after some steps of the year's life."""
    owner = year.owner

    async def note(text: str, **more: Any) -> str:
        added = await owner.append(
            {"entry_type": "memory.remembered", "summary": text, "agent_id": "ada", "crew_id": "red", **more}
        )
        return added.id

    def asked(query: str, hit: str, **more: Any) -> dict[str, Any]:
        return {"query": query, "hit": hit, "recipe": "lexical", "mode": "inject", "kinds": ["entries"], **more}

    gate = f"gate{number}q"
    old = await note(f"The code of {gate} is 1111")
    question = f"code of {gate}"
    yield await planted(
        year, True, asked(question, old), note(f"The code of {gate} is 2222", supersedes=[old]), "superseded"
    )
    shed = await note(f"The colour of shed{number}q is red")
    fix = owner.correct(shed, f"The colour of shed{number}q is blue")
    yield await planted(
        year, True, asked(f"colour of shed{number}q", shed), fix, "corrected", "superseded", "retracted"
    )
    barn = await note(f"The height of barn{number}q is nine")
    away = owner.retract(barn, "it was wrong")
    yield await planted(year, True, asked(f"height of barn{number}q", barn), away, "retracted")
    quay = await note(f"The length of quay{number}q is ten", entry_type="run.completed", agent_id="eve")
    pin = owner.set_priority(quay, "pin", "it matters")
    yield await planted(
        year, True, asked(f"length of quay{number}q", quay, crew_id="red", scope="crew_shared"), pin, "priority"
    )
    line = owner.document_write("AGENT", "append", f"- The depth of well{number}q is six\n", agent_id="ada")
    document = asked(f"depth of well{number}q", "a-ada/AGENT.md", agent_id="ada", kinds=["documents"])
    yield await planted(year, True, document, line, "written")
    await owner.kg_add(f"mast{number}q", "has_owner", "otto")
    fact = asked(f"who is the owner of mast{number}q?", "", kinds=["facts"])
    fact |= {"contains": f"mast{number}q has_owner otto", "hit": None}
    end = owner.kg_invalidate(f"mast{number}q", "has_owner", "otto", ended="2026-01-05")
    yield await planted(year, True, fact, end, "ended")
    dock = await note(f"The width of dock{number}q is four")
    floor = owner.configure_workspace(evidence_floor=0.99)
    yield await planted(year, False, asked(f"width of the old dock{number}q", dock), floor, "setting")
    await owner.configure_workspace(reset=("evidence_floor",))
    text, query = BY_MEANING[number]
    meant = await note(text)
    by_meaning = {"query": query, "hit": meant, "recipe": "dense", "kinds": ["entries"]}
    await year.activate(MINILM)
    await until(lambda: _finds(owner, by_meaning), f"the vector of {text!r}")
    await year.activate(RED)
    yield await planted(year, False, by_meaning, year.activate(MINILM), "model")
    await year.activate(RED)
    coal = await note(f"The weight of coal{number}q is two")
    yield await planted(year, True, asked(f"weight of coal{number}q", coal), year.erase_id(coal), "erased")


async def _finds(owner: AsyncCrewJournal, asked: Mapping[str, Any]) -> bool:
    found = await owner.recall(asked["query"], recipe=asked["recipe"], kinds=asked["kinds"])
    return asked["hit"] in {hit.entry_id for hit in found.hits}


async def check_plants(year: Year, rounds: int) -> int:
    found = 0
    for number in range(rounds):
        async for plant in plant_all(year, number):
            since = plant.before if plant.whys != ("written",) else plant.before - year.draw.randrange(40)
            answer = await year.owner.bisect(
                since=str(since), **{k: v for k, v in plant.asked.items() if v is not None}
            )
            assert answer.event is not None, f"{plant}: {answer}"
            assert plant.before < answer.event.seq <= plant.after, f"{plant}: {answer}"
            assert answer.why in plant.whys, f"{plant}: {answer}"
            assert answer.event.author, answer
            assert (answer.rank_before is None) != (answer.rank_after is None) or answer.why == "erased"
            n = answer.until_seq - answer.since_seq
            assert answer.past_views <= math.log2(n) + 1, f"{answer.past_views} past views of {n} messages"
            found += 1
    return found


async def test_bisect_finds_each_planted_event_its_author_and_the_reason(year: Year) -> None:
    assert await check_plants(year, PLANTED) == 9


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
async def test_bisect_finds_100_planted_events(tmp_path: Path) -> None:
    async with lived_year(tmp_path, STEPS) as lived:
        assert await check_plants(lived, FULL_PLANTED) >= 100


async def test_bisect_says_if_the_answers_do_not_differ_and_refuses_what_it_cannot_search(year: Year) -> None:
    first, last = year.seqs[len(year.seqs) // 2], await year.head()
    asked: dict[str, Any] = {"query": "where is the zeppelin?", "since": str(first)}
    absent = await year.owner.bisect(**asked, hit="no-such-entry")
    assert (absent.why, absent.event, absent.past_views) == ("absent", None, 1)
    both: tuple[dict[str, Any], ...] = ({}, {"hit": "a", "contains": "b"})
    for more in both:
        with pytest.raises(InvalidQuery, match="hit"):
            await year.owner.bisect(**asked, **more)
    with pytest.raises(InvalidQuery, match="since"):
        await year.owner.bisect("x", since=str(last), until=str(first), hit="a")
    hidden = await year.owner.append(
        {"entry_type": "memory.remembered", "summary": "eve knows the zeppelin", "agent_id": "eve", "crew_id": "red"}
    )
    assert (await year.ada.bisect(**asked, hit=hidden.id, min_seq=hidden.seq)).why == "absent"


# replay


async def test_unchanged_recalls_come_out_as_recorded_except_what_was_erased(year: Year) -> None:
    answer = await year.owner.replay(receipts=year.receipts)
    assert answer.total == len(year.receipts) >= 3
    assert answer.views == "then"
    assert sum(one.hits_before for one in answer.receipts) > answer.total
    for one in answer.receipts:
        assert one.exact
        assert one.reproduced or any(change.why == "erased" for change in one.differences), one.model_dump_json(
            indent=1
        )
        assert (one.changed, one.overlap) == ((), 1.0)
    assert answer.reproduced >= 1


async def test_recalls_without_an_entry_show_what_it_and_what_was_made_of_it_bring(year: Year) -> None:
    owner = year.owner
    base = await year.note(summary="The periscope of the harbour is green", agent_id="ada", crew_id="red")
    made = await owner.append(
        {
            "entry_type": "memory.remembered",
            "summary": "So the periscope of the quarry is green, too",
            "agent_id": "eve",
            "crew_id": "red",
            "refs": {"derived_from": [base]},
        }
    )
    await year.note(summary="The periscope of the orchard is blue", agent_id="bob", crew_id="blue")
    seq = await year.head()
    found = await owner.recall("which periscope is green?", k=5, min_seq=seq)
    assert found.receipt is not None
    assert {base, made.id} <= {hit.entry_id for hit in found.hits}
    answer = await owner.replay(receipts=[found.receipt], without=[base])
    [one] = answer.receipts
    assert one.reproduced
    lost = {change.id for change in one.changed if change.after is None}
    assert lost >= {base, made.id}
    assert answer.left_out >= 2
    assert 0 < one.overlap < 1
    assert (answer.changed, answer.overlap) == (1, one.overlap)
    assert (await owner.get(base)).id == base, "nothing is erased"
    with pytest.raises(NotFound, match="no-such-entry"):
        await owner.replay(receipts=[found.receipt], without=["no-such-entry"])
    with pytest.raises(NotFound):
        await owner.replay(receipts=["r_none"])
    with pytest.raises(NotAllowed):
        await year.ada.replay(receipts=[found.receipt])


async def test_recalls_with_another_recipe_policy_or_model_show_what_changes(year: Year) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"recipe": "lexical"},
        {"policy": "inject"},
        {"model": RED},
        {"model": MINILM},
    )
    for change in changes:
        answer = await year.owner.replay(latest=3, **change)
        assert answer.views == ("now" if "model" in change else "then")
        assert (answer.asked, answer.total) == ({"without": [], **change}, 3)
        assert answer.changed == sum(bool(one.changed) for one in answer.receipts)
        for one in answer.receipts:
            lost = sum(hit.after is None for hit in one.changed)
            gained = sum(hit.before is None for hit in one.changed)
            assert one.hits_after == one.hits_before - lost + gained
            assert (one.overlap == 1) == (not one.changed)
    with pytest.raises(InvalidQuery, match="recipe"):
        await year.owner.replay(latest=1, recipe="no-such-recipe")
    with pytest.raises(InvalidQuery, match="model"):
        await year.owner.replay(latest=1, model=RED, without=["a"])
