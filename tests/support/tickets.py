"""A kind of text that no family has: what a branch that adds tickets declares, and a node with it.

``python -m support.tickets FOLDER`` starts such a node, remembers tickets of an agent, and writes as JSON what recall, a
rendered block and a receipt say of them to that agent, to another one and in another workspace. It is a process of its
own, because the kinds of a process are fixed when ``schemas/texts`` is imported.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, ClassVar

import orjson
from Stemmer import Stemmer

from crew_journal.consumers.folds.words import chunk_terms
from crew_journal.consumers.projection import Batch, FoldTransaction
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.ids import hash64, name_key
from crew_journal.schemas.core.table import Tables
from crew_journal.schemas.core.texts import HIDDEN, WORKSPACE_OWNER, TextKind, TextRow, text_table
from crew_journal.schemas.text.analyzer import Analyzer

TICKET_TEXTS = text_table("ticket_texts", "tickets")
TICKET = TextKind("ticket", TICKET_TEXTS, recalled="tickets", causes=("journal.>",))


class TicketsProjection:
    """Folds entries that name a ticket; of a closed one the text is hidden, and one may be its agent's alone."""

    name: ClassVar = "tickets"
    version: ClassVar = 1
    tables: ClassVar[Tables] = (TICKET_TEXTS,)
    folds: ClassVar = (EntryRecorded,)

    def __init__(self) -> None:
        self._analyzer = Analyzer(Stemmer)

    def apply(self, batch: Batch, tx: FoldTransaction) -> None:
        rows = {
            event.entry.payload["ticket"]: self._row(event)
            for event in batch.entries
            if "ticket" in event.entry.payload
        }
        tx.replace(TICKET_TEXTS, list(rows.values()))

    def _row(self, event: EntryRecorded) -> TextRow:
        entry, number = event.entry, str(event.entry.payload["ticket"])
        text = f"{JAMS}{entry.payload.get('cause', entry.summary)}"
        return TextRow(
            name_key((event.workspace_id, number)),
            event.workspace_id,
            f"a-{entry.agent_id}" if entry.payload.get("own") else WORKSPACE_OWNER,
            number,
            text,
            hash64(f"Ticket {number}\n{text}"),
            *chunk_terms(self._analyzer, text),
            entry.id,
            event.ts_ms,
            event.seq,
            place="helpdesk",
            label=f"Ticket {number}",
            flags=HIDDEN if entry.payload.get("closed") else 0,
        )


JAMS = "The franking machine jams: "
ANSWERS = "answers.json"
"""File in the folder with the answers."""
OWN_KIND: Any = ("tickets",)
"""The generated client of a branch with tickets has this kind in its types."""
QUERY = "why does the franking machine jam?"


def _noted(number: str, **ticket: Any) -> dict[str, Any]:
    return {"entry_type": "run.completed", "summary": f"Noted {number}", "payload": {"ticket": number, **ticket}}


async def _main(folder: Path) -> None:
    from support import folded_journal
    from support.stack import running_stack

    from crew_journal.consumers.discovery import discover_projections
    from crew_journal.schemas.core.principal import Role

    vars(folded_journal)["discover_projections"] = lambda: [*discover_projections(), TicketsProjection()]
    async with running_stack(folder) as stack:
        tokens = {
            (agent, workspace): (await stack.token(Role.AGENT, workspace, agent=agent, crew="red")).plaintext
            for agent, workspace in (("ada", "here"), ("eve", "here"), ("ada", "there"))
        }
        tickets: dict[str, dict[str, Any]] = {
            "T-1": {"cause": "its roller is worn"},
            "T-2": {"cause": "Ada fed it with foil", "own": True},
            "T-3": {"cause": "it was Monday", "closed": True},
        }
        answers: dict[str, Any] = {}
        async with stack.client(tokens["ada", "here"]) as client:
            for number, ticket in tickets.items():
                done = await client.append(_noted(number, **ticket))
            answers["ada"] = await client.recall(QUERY, k=10, min_seq=done.seq)
            answers["tickets"] = await client.recall(QUERY, k=10, kinds=OWN_KIND)
            answers["others"] = await client.recall(QUERY, k=10, kinds=["documents", "drawers", "facts"])
            answers["block"] = await client.render(QUERY, kinds=OWN_KIND, mode="search")
            answers["receipt"] = await client.receipt(answers["tickets"].receipt)
        for who in (("eve", "here"), ("ada", "there")):
            async with stack.client(tokens[who]) as client:
                answers[" of ".join(who)] = await client.recall(QUERY, k=10)
        async with stack.client(tokens["ada", "here"]) as client:
            done = await client.append(_noted("T-1", cause="the roller is new", closed=True))
            answers["closed"] = await client.recall(QUERY, k=10, kinds=OWN_KIND, min_seq=done.seq)
    said = {name: answer.model_dump(mode="json") for name, answer in answers.items()}
    (folder / ANSWERS).write_bytes(orjson.dumps(said))


if __name__ == "__main__":
    from crew_journal.schemas.facts import tables

    vars(tables)["TICKET_KIND"] = TICKET  # the line that the branch adds to the tables of its family
    asyncio.run(_main(Path(sys.argv[1])))
