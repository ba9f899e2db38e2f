"""The use-cases of dead letters, for operators.

Invariant: a workspace's administrator sees and settles the letters of that workspace only; every decision is recorded with
the token that took it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from ...schemas.errors import BrokerUnavailable, NotFound, RefusedByOneView
from ...schemas.operations import letters as ops
from ...schemas.views import BEFORE_VIEWS
from ..desk import Caller
from ..node import Answers, Node
from .letter_stream import DeadLetters
from .status import LETTERS

_BODY_CHARS = 2_000
_MOST = 1_000
_COLUMNS = tuple(name for name in ops.DeadLetter.model_fields if name != "body")
_DEAD_LETTERS = f"""
SELECT {", ".join(_COLUMNS)} FROM {LETTERS}
WHERE ($1 IS NULL OR workspace_id = $1) AND ($2 IS NULL OR state = $2)
ORDER BY seq DESC, projection LIMIT {_MOST}
"""


class Letters:
    """Lists dead letters from the views, and settles those that DEADLETTER keeps."""

    def __init__(self, node: Node) -> None:
        self._views = node.views
        self._kept = node.use(DeadLetters)

    async def show(self, caller: Caller, request: ops.DeadLettersRequest) -> ops.DeadLettersAnswer:
        """Parked events, newest first, at most 1,000, with the beginnings of their bodies."""
        letters = await self._letters(caller, request.state)
        bodies = await self._bodies() if any(letter.state == "parked" for letter in letters) else {}
        shown = (letter.model_copy(update={"body": bodies.get((letter.projection, letter.seq))}) for letter in letters)
        return ops.DeadLettersAnswer(dead_letters=tuple(shown))

    async def _bodies(self) -> dict[tuple[str, int], str]:
        """Projection and sequence → beginning of the body, of what DEADLETTER keeps; empty if the broker is away."""
        bodies: dict[tuple[str, int], str] = {}
        with contextlib.suppress(BrokerUnavailable):
            async for letter in self._kept.kept():
                text = letter.body[: 4 * _BODY_CHARS].decode("utf-8", "backslashreplace")[:_BODY_CHARS]
                bodies[letter.projection, letter.seq] = text
                if len(bodies) == _MOST:
                    break
        return bodies

    async def retry(self, caller: Caller, request: ops.RetryRequest) -> ops.DeadLetterAnswer:
        """Publish a parked event again as a new one.

        Raises:
            NotFound: If no event is parked at ``seq``.
            RefusedByOneView: If all other views have it, unless forced.
        """
        letter = (await self._parked(caller, request.seq))[0]
        if letter.projection not in BEFORE_VIEWS and not request.force:
            raise RefusedByOneView(
                f"only {letter.projection} failed to fold the event at {request.seq}; all other views would apply it twice",
                hint=f"fix {letter.projection} and raise its version: it then folds the event in its place, which settles "
                "this; or discard it; or publish it again with --force",
            )
        new_seq = await self._kept.retry(await self._kept.find(letter.projection, letter.seq), actor_id=caller.actor)
        return ops.DeadLetterAnswer(seq=request.seq, state="retried", new_seq=new_seq)

    async def discard(self, caller: Caller, request: ops.DiscardRequest) -> ops.DeadLetterAnswer:
        """Discard a parked event.

        Raises:
            NotFound: If no event is parked at ``seq``.
        """
        for letter in await self._parked(caller, request.seq):
            await self._kept.discard(
                await self._kept.find(letter.projection, letter.seq), reason=request.reason, actor_id=caller.actor
            )
        return ops.DeadLetterAnswer(seq=request.seq, state="discarded")

    async def _letters(self, caller: Caller, state: str | None) -> list[ops.DeadLetter]:
        rows = await asyncio.to_thread(self._views.rows, _DEAD_LETTERS, [caller.workspace_or_all, state])
        return [ops.DeadLetter.model_validate(dict(zip(_COLUMNS, row, strict=True))) for row in rows]

    async def _parked(self, caller: Caller, seq: int) -> list[ops.DeadLetter]:
        letters = [letter for letter in await self._letters(caller, "parked") if letter.seq == seq]
        if not letters:
            raise NotFound(f"no parked event at sequence {seq}", hint="crew-journal dlq list shows them")
        return letters


ANSWERS: Final[Answers] = (
    (ops.DEAD_LETTERS, Letters.show),
    (ops.RETRY_DEAD_LETTER, Letters.retry),
    (ops.DISCARD_DEAD_LETTER, Letters.discard),
)
