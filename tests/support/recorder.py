"""A journal for tests of use-cases: keeps what is recorded, can be away, can lose its acks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from crew_journal.schemas.core.errors import BrokerUnavailable
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.services.journal.intake.append import Appended


@dataclass
class FakeRecorder:
    """Implements ``services.journal.intake.append.Recorder``: an id is recorded once."""

    recorded: dict[tuple[str, str], ControlPayload] = field(default_factory=dict)
    said: list[dict[str, Any]] = field(default_factory=list)
    away: bool = False
    loses_acks: bool = False

    async def record(self, workspace_id: str, payload: ControlPayload, **given: Any) -> Appended:
        if self.away:
            raise BrokerUnavailable("no ack", hint="try again")
        name = given.get("entry_id") or f"minted{len(self.recorded)}"
        known = (workspace_id, name) in self.recorded
        assert not known or self.recorded[workspace_id, name] == payload, "one id, two contents"
        self.recorded[workspace_id, name] = payload
        self.said.append({"workspace_id": workspace_id, **given})
        if self.loses_acks:
            raise BrokerUnavailable("no ack", hint="try again")
        return Appended(name, len(self.recorded), known)

    def of(self, kind: type[ControlPayload]) -> list[Any]:
        """What was recorded of one kind, in order."""
        return [payload for payload in self.recorded.values() if isinstance(payload, kind)]
