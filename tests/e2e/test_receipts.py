"""What recalls showed to whom, across restarts and nodes; and what a prompt gets of a chat without vectors."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.embedding import until
from support.external import ExternalBroker, external_broker
from support.running import running_node

from crew_journal.services.client import AsyncCrewJournal

SPEAKERS = ("Caroline", "Melanie", "Jon")
THINGS = ("lantern", "violin", "kayak", "teapot", "compass", "saddle", "hammock", "telescope", "accordion", "chisel",
          "loom", "anvil", "banjo", "sextant", "trellis", "pulley", "quilt", "rudder", "spindle", "tripod")  # fmt: skip
MESSAGES = 600
LINE = re.compile(r"- \[chat\.user_message • agent chat, actor user (\w+) • 2026-0[1-6]-\d\d \(\d+\w+ ago\) • ")


def chat() -> list[dict[str, object]]:
    """Small talk, and one message about each thing."""
    said = [f"Honestly the weather on walk number {n} was rather mixed" for n in range(MESSAGES)]
    for number, thing in enumerate(THINGS):
        said[number * 29 + 7] = f"I finally repaired the old {thing} in my garage"
    return [
        {
            "id": f"m{n}", "agent_id": "chat", "entry_type": "chat.user_message", "actor_type": "user",
            "actor_id": SPEAKERS[n % 3], "ts": f"2026-0{1 + n // 100}-{1 + n % 28:02}T10:00:00Z", "trace_id": f"s{n // 20}",
            "summary": text,
        }
        for n, text in enumerate(said)
    ]  # fmt: skip


async def test_a_render_of_chat_names_speaker_and_date_for_every_question_with_an_answer(tmp_path: Path) -> None:
    async with running_node(tmp_path / "data") as node, AsyncCrewJournal(node.http_url, node.owner_token) as client:
        seq = (await client.append_batch(chat()))[-1].seq
        good = 0
        for number, thing in enumerate(THINGS):
            block = await client.render(f"Who repaired the {thing}?", min_seq=seq)
            wanted = f"m{number * 29 + 7}"
            lines = [line for line in block.text.splitlines() if line.startswith("- ")]
            good += wanted in {hit.entry_id for hit in block.hits} and all(map(LINE.match, lines))
        assert good == len(THINGS)
        assert block.status == "ok"


@asynccontextmanager
async def node_of(broker: ExternalBroker, data_dir: Path) -> AsyncIterator[AsyncCrewJournal]:
    """The owner's client of a node on that broker."""
    where = {"nats": broker.url, "nats_user": broker.user, "nats_password": broker.password}
    async with running_node(data_dir, **where) as node, AsyncCrewJournal(node.http_url, node.owner_token) as owner:
        yield owner


async def test_a_receipt_counts_once_across_restarts_and_nodes(tmp_path: Path) -> None:
    async with external_broker(tmp_path / "broker") as broker:
        async with node_of(broker, tmp_path / "one") as owner:
            seq = (await owner.append_batch(chat()[:50]))[-1].seq
            found = await owner.recall("lantern walk", k=3, min_seq=seq)
            unused = await owner.recall("weather", k=2)
        assert found.receipt is not None
        assert unused.receipt is not None
        async with node_of(broker, tmp_path / "two") as owner:
            shown = await owner.receipt(found.receipt)
            assert (shown.query, shown.asked_by, shown.rendered) == ("lantern walk", "owner", False)
            assert [(hit.entry_id, hit.score, hit.used) for hit in shown.hits] == [
                (hit.entry_id, hit.score, None) for hit in found.hits
            ]
            used = await owner.used(found.receipt, entry_ids=[found.hits[0].entry_id])
            assert (used.counted, used.already) == (1, False)
        async with node_of(broker, tmp_path / "one") as owner:
            again = await owner.used(found.receipt)
            assert (again.counted, again.already) == (0, True)
            shown = await owner.receipt(found.receipt)
            assert [hit.used for hit in shown.hits] == [True, False, False]
            assert (await owner.used(unused.receipt)).counted == 2


async def test_there_is_no_receipt_while_the_broker_is_down_and_recall_goes_on(tmp_path: Path) -> None:
    async with external_broker(tmp_path / "broker") as broker, node_of(broker, tmp_path / "one") as owner:
        seq = (await owner.append_batch(chat()[:50]))[-1].seq
        before = await owner.recall("lantern", min_seq=seq)
        assert before.receipt is not None
        await owner.receipt(before.receipt)  # it is in the view
        await broker.stop()

        async def gone() -> bool:
            return (await owner.recall("lantern")).receipt is None

        await until(gone, "a recall without a receipt")
        block = await owner.render("lantern")
        assert (block.receipt, block.status) == (None, "ok")
        assert (await owner.receipt(before.receipt)).query == "lantern"
