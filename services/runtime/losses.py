"""Accepts a loss of the journal: records the lost sequences, which are explained from then on, and keeps the old views.

Invariant: views files that know what was lost stop counting as a reason for not being ready only after the journal says that
the loss is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...consumers.host.opening import AHEAD
from ...consumers.host.rebuild import BEFORE_LOSS, Rebuilt
from ...schemas.entry import ActorType, Severity
from ...schemas.events.erasure import LossAccepted
from ...schemas.ids import SYSTEM_WORKSPACE, uuid7_hex
from ...schemas.sequence_set import Range, in_parts, normalised, size_of
from ..journal.intake.append import Journal

MAX_NAMED: Final = 20_000
"""Ids of lost entries that the record names; `salvage` writes all."""
REASON: Final = "accepted with rebuild --accept-loss"


def ahead_files(views: Path) -> list[str]:
    """Names of the views files that know what the stream has lost, as long as the loss is not accepted."""
    return sorted(path.name for path in views.parent.glob(f"{views.name}{AHEAD}*") if path.suffix != ".wal")


async def accept_loss(
    journal: Journal, views: Path, rebuilt: Rebuilt, missing: Sequence[Range], *, actor: str | None
) -> int:
    """Record the loss, then mark the views files that know of it as accepted.

    Args:
        journal: Where it is recorded.
        views: The views file.
        rebuilt: The replaced views.
        missing: Sequences that were missing before.
        actor: Id of the token that accepts it.

    Returns:
        The sequence of the record, 0 if nothing was lost.
    """
    lack, ahead = rebuilt.lack, ahead_files(views)
    lost = normalised([*missing, *(lack.sequences if lack is not None else ())])
    ids = [entry_id for _, entry_id in lack.ids[:MAX_NAMED]] if lack is not None else []
    if not (lost or ids or ahead):
        return 0
    kept_as = ", ".join([*([rebuilt.kept_as] if rebuilt.kept_as else []), *(_accepted(name) for name in ahead)])[:255]
    loss_id, parts, seq = f"l_{uuid7_hex()}", in_parts(lost, ids), 0
    for number, part in enumerate(parts, 1):
        payload = LossAccepted(
            loss_id=loss_id, lost=part, part=number, parts=len(parts), kept_as=kept_as, reason=REASON
        )
        appended = await journal.record(
            SYSTEM_WORKSPACE,
            payload,
            summary=f"loss of {size_of(lost):,} sequences of the journal accepted ({number} of {len(parts)})",
            severity=Severity.WARN,
            actor_type=ActorType.USER if actor is not None else ActorType.SYSTEM,
            actor_id=actor,
        )
        seq = appended.seq
    for name in ahead:
        for suffix in ("", ".wal"):
            old = views.with_name(name + suffix)
            if old.exists():
                old.replace(views.with_name(_accepted(name) + suffix))
    journal.forget_lost(lost)
    return seq


def _accepted(name: str) -> str:
    return name.replace(AHEAD, BEFORE_LOSS) + "-end"
