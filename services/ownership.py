"""Whether this node decides for a workspace, and the condition under which the broker stores a decision.

The node that decides for a workspace also keeps its texts in memory and searches them for the others.

Invariant: a decision is made at the owner of its workspace, and carries the assignment under which the owner acted. The
broker refuses it if there is a later one, so a paused or cut-off node cannot decide after another has taken over. A node
that runs alone owns everything, without conditions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar

from ..schemas.core.operation import Operation
from ..schemas.core.ports import NearQuery, NearText
from ..schemas.core.principal import Principal

T = TypeVar("T")


class Tenure(Protocol):
    """The time since this node decides for a slot."""

    def epoch(self) -> int:
        """The sequence of the current assignment; raises ``NotOwner`` if the slot was lost since."""
        ...

    async def renewed(self, refused: int) -> None:
        """Return when an assignment after ``refused`` is known; raises ``NotOwner`` if the slot is lost."""
        ...


FENCE: Final[ContextVar[Tenure | None]] = ContextVar("crew_journal_fence", default=None)
"""The tenure under which this task decides; None at a node that runs alone, and for what needs no owner."""


class Ownership:
    """What a node decides; this one runs alone and decides everything."""

    def hold(self, workspace_id: str) -> bool:
        """Whether this node decides for the workspace; from here on, the task's writes are under that condition."""
        return True

    async def answer(
        self,
        operation: Operation[Any, Any],
        workspace_id: str,
        principal: Principal,
        raw: Mapping[str, Any],
        here: Callable[[], Awaitable[Any]],
    ) -> Any:
        """The answer of the workspace's owner: of ``here``, or of another node.

        A search is answered by ``here`` while its owner is silent.
        """
        return await here()

    async def nearest(
        self, query: NearQuery, here: Callable[[NearQuery], Awaitable[list[list[NearText]]]]
    ) -> list[list[NearText]]:
        """The texts that the workspace's owner finds, or ``here`` while it is silent."""
        return await here(query)

    async def refold_others(self, workspace_id: str) -> Mapping[str, bool]:
        """Let the other nodes drop what was erased; node → whether it confirmed."""
        return {}


ALONE: Final = Ownership()
