"""References over HTTP: from a recall's receipt to the event, against a real broker."""

from __future__ import annotations

import asyncio

import pytest
from support.stack import Stack, until

from crew_journal.schemas.core.errors import InvalidQuery, NotFound
from crew_journal.schemas.core.limits import COLLECTED_MOST
from crew_journal.schemas.core.principal import Role

_COUNTS = "SELECT entry_id, reference_count FROM memory_importance WHERE workspace_id = ? AND reference_count > 0"


def counts(stack: Stack, workspace: str) -> dict[str, int]:
    return {str(name): int(count) for name, count in stack.store.rows(_COUNTS, [workspace])}


async def fill(stack: Stack, workspace: str, number: int) -> int:
    """Entries of agent a1 that only full text can find: there is no vector anywhere in this stack."""
    async with stack.client() as client:
        batch = [
            {"id": f"e{i}", "workspace_id": workspace, "crew_id": "c1", "agent_id": "a1",
             "entry_type": "chat.user_message", "summary": f"the parser of stage {i} broke"}
            for i in range(number)
        ]  # fmt: skip
        receipts = await client.append_batch(batch)
    return receipts[-1].seq


async def test_hits_that_only_full_text_found_are_counted_once_they_are_used(stack: Stack) -> None:
    """[TRAP] contract §5: sparse-only hits were never stamped, and the whole lane of 20+ was."""
    seq = await fill(stack, "sparse", 40)
    token = await stack.token(Role.AGENT, "sparse", agent="a1", crew="c1")
    async with stack.client(token.plaintext) as client:
        answer = await client.recall("parser", k=3, min_seq=seq)
        assert len(answer.hits) == 3
        assert counts(stack, "sparse") == {}
        assert answer.receipt is not None
        used = await client.used(answer.receipt)
        assert (used.counted, used.already) == (3, False)
        again = await client.used(answer.receipt, entry_ids=[answer.hits[0].entry_id])
        assert (again.counted, again.already) == (0, True)
    await until(lambda: bool(counts(stack, "sparse")))
    assert counts(stack, "sparse") == {hit.entry_id: 1 for hit in answer.hits}


async def test_a_subset_counts_and_a_stranger_is_refused(stack: Stack) -> None:
    seq = await fill(stack, "subset", 5)
    mine = await stack.token(Role.AGENT, "subset", agent="a1", crew="c1")
    colleague = await stack.token(Role.AGENT, "subset", agent="a2", crew="c1")
    elsewhere = await stack.token(Role.OWNER, "other")
    async with stack.client(mine.plaintext) as client:
        answer = await client.recall("parser", k=4, min_seq=seq)
        assert answer.receipt is not None
        for stranger in (colleague, elsewhere):
            async with stack.client(stranger.plaintext) as other:
                with pytest.raises(NotFound, match="no receipt"):
                    await other.used(answer.receipt)
        with pytest.raises(InvalidQuery, match="does not hold"):
            await client.used(answer.receipt, entry_ids=["e-unknown"])
        assert (await client.used(answer.receipt, entry_ids=[answer.hits[1].entry_id])).counted == 1
        with pytest.raises(NotFound):
            await client.used("r_unknown")
    await until(lambda: bool(counts(stack, "subset")))
    assert counts(stack, "subset") == {answer.hits[1].entry_id: 1}


async def test_the_synchronous_client_and_a_bare_post_say_the_same(stack: Stack) -> None:
    seq = await fill(stack, "plain", 2)
    async with stack.http() as http:
        found = await http.post("/v1/recall", json={"query": "parser", "workspace_id": "plain", "min_seq": seq})
        answer = await http.post(f"/v1/recall/{found.json()['receipt']}/used")
        assert answer.json() == {"receipt": found.json()["receipt"], "counted": 2, "already": False}
        wrong = await http.post(f"/v1/recall/{found.json()['receipt']}/used", json={"entries": []})
        assert wrong.status_code == 422
        nobody = {"Authorization": f"Bearer cj_{'x' * 43}"}
        assert (await http.post("/v1/recall/r_x/used", headers=nobody)).status_code == 401


async def test_whatever_is_repeated_a_receipt_counts_each_of_its_hits_once(stack: Stack) -> None:
    seq = await fill(stack, "once", 3)
    async with stack.http() as http:
        asked = {"query": "parser", "workspace_id": "once", "min_seq": seq}
        receipt = (await http.post("/v1/recall", json=asked)).json()["receipt"]
        path = f"/v1/recall/{receipt}/used"
        refused = await http.post(path, json={"entry_ids": ["e0", "elsewhere"]})
        assert (refused.status_code, refused.json()["field"]) == (400, "entry_ids")
        assert (await http.post(path, json={"entry_ids": ["e0"] * (COLLECTED_MOST + 1)})).status_code == 422
        several = [http.post(path, json={"entry_ids": ["e0", "e0", "e1", "e0"]}) for _ in range(8)]
        answers = [answer.json() for answer in await asyncio.gather(*several)]
        assert sorted(answer["counted"] for answer in answers) == [0] * 7 + [2]
        assert sum(answer["already"] for answer in answers) == 7
        assert (await http.post(path)).json() == {"receipt": receipt, "counted": 0, "already": True}
        rendered = (await http.post("/v1/recall/render", json=asked)).json()
        again = (await http.post(f"/v1/recall/{rendered['receipt']}/used")).json()
        assert (again["counted"], again["already"]) == (0, True)
        assert len(rendered["hits"]) == 3
    await until(lambda: sum(counts(stack, "once").values()) >= 5)
    assert counts(stack, "once") == {"e0": 2, "e1": 2, "e2": 1}
