"""How laws of a memory provider are tried: scopes of their own, requests in them, a verdict each.

Invariant: a law asks the methods of the port alone and ends with ``Broken`` or not at all. Search may lag: what must be
found is asked for up to ``LAG_S`` seconds.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from ....schemas.provider import (
    ForgetRequest,
    ForgetResult,
    MemoryProvider,
    ProviderFactory,
    ProviderScope,
    RecallResult,
    RecallSnippet,
    RetainRequest,
    RetainResult,
    SnippetsRequest,
)

LAW_S: Final = 60.0
"""Seconds after which a law counts as broken."""
LAG_S: Final = 5.0
"""Seconds within which a write is found."""
_PAUSE_S: Final = 0.05


class Broken(AssertionError):
    """A law that does not hold, with what was seen."""


@dataclass(frozen=True, slots=True)
class LawVerdict:
    """How a law ended; ``seen`` is None if it holds."""

    law: str
    sentence: str
    seen: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class TrialReport:
    """Verdicts in the order of the laws."""

    verdicts: tuple[LawVerdict, ...]

    @property
    def broken(self) -> tuple[LawVerdict, ...]:
        """Those that do not hold."""
        return tuple(verdict for verdict in self.verdicts if verdict.seen is not None)

    def lines(self) -> list[str]:
        """The report for people."""
        shown = []
        for verdict in self.verdicts:
            shown.append(f"{'ok    ' if verdict.seen is None else 'BROKEN'}  {verdict.law}: {verdict.sentence}")
            if verdict.seen is not None:
                shown.append(f"        seen: {verdict.seen}")
        return [*shown, f"{len(self.verdicts) - len(self.broken)} of {len(self.verdicts)} laws hold"]


@dataclass(frozen=True, slots=True)
class Bound:
    """A provider and the scope it is bound to, with requests in that scope."""

    provider: MemoryProvider
    scope: ProviderScope

    async def retain(self, content: str, tier: str = "AGENT", mode: str = "replace", **more: Any) -> RetainResult:
        """Write."""
        fields = {"tier": tier, "mode": mode, "content": content, **more}
        return await self.provider.retain(RetainRequest(workspace_id=self.scope.workspace_id, **fields))

    async def recall(self, query: str, **more: Any) -> RecallResult:
        """Search."""
        request = SnippetsRequest(**{"workspace_id": self.scope.workspace_id, "query": query, **more})
        return await self.provider.recall(request)

    async def forget(self, document: str | None = None, **more: Any) -> ForgetResult:
        """Forget."""
        request = ForgetRequest(**{"workspace_id": self.scope.workspace_id, "id": document, **more})
        return await self.provider.forget(request)

    async def hits(self, word: str, **more: Any) -> list[RecallSnippet]:
        """The hits that hold a word."""
        return [hit for hit in (await self.recall(word, **more)).hits if word in hit.snippet]

    async def must_find(self, word: str, **more: Any) -> list[RecallSnippet]:
        """The hits that hold a word, once there is one."""
        recall_snippets = await _until(lambda: self.hits(word, **more), bool)
        must(bool(recall_snippets), f"a search for {word!r}, which was written, finds nothing")
        return recall_snippets

    async def must_miss(self, word: str, why: str) -> None:
        """No hit holds the word, at the latest after a lag."""
        recall_snippets = await _until(lambda: self.hits(word), lambda hits: not hits)
        must(
            not recall_snippets,
            f"a search finds {word!r} in {recall_snippets[0].source if recall_snippets else ''}, {why}",
        )


@dataclass(frozen=True, slots=True)
class World:
    """Scopes that nothing else uses.

    Attributes:
        make: The provider under test.
        workspace_id: Where its documents are; the documents of the workspace itself are overwritten.
    """

    make: ProviderFactory
    workspace_id: str = field(default_factory=lambda: f"parity-{secrets.token_hex(4)}")

    def bound(self, **given: Any) -> Bound:
        """A provider for an agent and a crew of its own; of an OWNER unless ``role`` says otherwise."""
        name = secrets.token_hex(6)
        fields = {"agent_id": f"a{name}", "crew_id": f"c{name}", "role": "OWNER", **given}
        scope = ProviderScope(**{"workspace_id": self.workspace_id, **fields})
        return Bound(self.make(scope), scope)


Law = Callable[[World], Awaitable[None]]


async def run(world: World, laws: Iterable[Law], *, law_s: float = LAW_S) -> TrialReport:
    """Run the laws, one after the other; never raises for what a provider does."""
    verdicts = []
    for law in laws:
        began, seen = monotonic(), None
        try:
            async with asyncio.timeout(law_s):
                await law(world)
        except Broken as error:
            seen = str(error)
        except TimeoutError:
            seen = f"no end within {law_s:.0f} s"
        except Exception as error:
            seen = f"{type(error).__name__}: {error}"
        sentence = " ".join((law.__doc__ or "").split())
        name = getattr(law, "__name__", "law").replace("_", " ")
        verdicts.append(LawVerdict(name, sentence, seen, monotonic() - began))
    return TrialReport(tuple(verdicts))


def must(holds: bool, seen: str) -> None:
    """Raise ``Broken`` with what was seen unless the law holds."""
    if not holds:
        raise Broken(seen)


async def must_refuse(kind: type[Exception], call: Awaitable[object], what: str) -> None:
    """Raise ``Broken`` unless a call raises an error of ``kind``; ``what`` names the call."""
    try:
        answer = await call
    except kind:
        return
    except Exception as error:
        raise Broken(f"{what} raises {type(error).__name__} ({error}), not {kind.__name__}") from None
    raise Broken(f"{what} returns {answer!r}, and should raise {kind.__name__}")


async def _until(
    ask: Callable[[], Awaitable[list[RecallSnippet]]], enough: Callable[[list[RecallSnippet]], bool]
) -> list[RecallSnippet]:
    ends = monotonic() + LAG_S
    while True:
        answer = await ask()
        if enough(answer) or monotonic() > ends:
            return answer
        await asyncio.sleep(_PAUSE_S)


def new_word() -> str:
    """A word that no document holds, of letters alone."""
    return "zq" + "".join(secrets.choice("bcdfghklmnprtvz") for _ in range(12))
