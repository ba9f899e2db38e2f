"""What the token of an agent may write: bytes and entries a minute, and bytes that wait to be folded.

Why: folding is slower than appending, and the views of all workspaces follow one stream in its order. Without a bound, 20 s
of one agent's entries kept the documents of another workspace from being readable for six minutes.

Invariants: a request is refused before its first write or not at all; what it then writes is charged. Tokens of role OWNER
and ADMIN have no budgets, nor have the service's own writes. The writer asks here, so every way of writing is counted.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from ..schemas.core.errors import EntryTooLarge, OverBudget
from ..schemas.core.principal import Principal
from ..schemas.settings import TOKEN_ENTRIES_PER_MINUTE, TOKEN_MB_PER_MINUTE, TOKEN_WAITING_MB, Settings

ACCOUNTS_KEPT: Final = 4_096
"""Accounts in memory, some 500 bytes each; the one that was used least recently is dropped first."""
WAITING_RETRY_S: Final = 2.0
"""Seconds after which a token is to try again whose bytes wait to be folded; about 2 MiB are folded meanwhile."""
_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Budgets of one token; 0 for no bound.

    Attributes:
        bytes_per_minute: Bytes of entries and documents.
        entries_per_minute: How many of them.
        waiting_bytes: Bytes of those that are not folded yet; also the most that one request may write at once.
    """

    bytes_per_minute: int = TOKEN_MB_PER_MINUTE << 20
    entries_per_minute: int = TOKEN_ENTRIES_PER_MINUTE
    waiting_bytes: int = TOKEN_WAITING_MB << 20

    @classmethod
    def of(cls, settings: Settings) -> BudgetLimits:
        """Those of a node."""
        return cls(
            settings.token_mb_per_minute << 20, settings.token_entries_per_minute, settings.token_waiting_mb << 20
        )


@dataclass(slots=True)
class _Account:
    """What one token has written.

    Attributes:
        size: Bytes that count against the minute; they decrease steadily.
        entries: Likewise.
        at: When both were brought up to date.
        waiting: Sequence and bytes of each write that is not known to be folded.
        waiting_bytes: Their sum.
        under_way: Bytes of writes that are not acked.
    """

    size: float = 0.0
    entries: float = 0.0
    at: float = 0.0
    waiting: deque[tuple[int, int]] = field(default_factory=deque)
    waiting_bytes: int = 0
    under_way: int = 0


class Budgets:
    """The accounts of all tokens with budgets.

    Args:
        limits: The bounds.
        folded: The last sequence that the views have folded.
        clock: Seconds, never going back.
    """

    def __init__(
        self,
        limits: BudgetLimits | None = None,
        folded: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits or BudgetLimits()
        self._folded = folded
        self._clock = clock
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def spender(self, principal: Principal, key: str | None = None) -> Spender | None:
        """The budgets of one request; None for a token that has none.

        Args:
            principal: Who asks.
            key: What names the account; the id of the token if absent.
        """
        if principal.role.administers:
            return None
        key = key or principal.token_id
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _Account(at=self._clock())
            if len(self._accounts) > ACCOUNTS_KEPT:
                self._accounts.popitem(last=False)
        else:
            self._accounts.move_to_end(key)
        return Spender(self, account)

    def admit(self, account: _Account, size: int) -> None:
        """Let a request write ``size`` bytes.

        Raises:
            OverBudget: If the token has used up a budget.
            EntryTooLarge: If the bytes are more than may ever wait.
        """
        limits, now = self._limits, self._clock()
        past = now - account.at
        account.at = now
        account.size = max(0.0, account.size - past * limits.bytes_per_minute / _MINUTE_S)
        account.entries = max(0.0, account.entries - past * limits.entries_per_minute / _MINUTE_S)
        if limits.bytes_per_minute and account.size >= limits.bytes_per_minute:
            raise _used_up(
                "bytes a minute", f"{limits.bytes_per_minute >> 20} MiB", account.size, limits.bytes_per_minute
            )
        if limits.entries_per_minute and account.entries >= limits.entries_per_minute:
            count = f"{limits.entries_per_minute:,} entries"
            raise _used_up("entries a minute", count, account.entries, limits.entries_per_minute)
        if limits.waiting_bytes:
            self._check_waiting(account, size)

    def _check_waiting(self, account: _Account, size: int) -> None:
        limit = self._limits.waiting_bytes
        if size > limit:
            raise EntryTooLarge(
                f"a request with this token may write {limit >> 20} MiB at once",
                hint="send smaller batches (CREW_JOURNAL_TOKEN_WAITING_MB)",
            )
        self._settle(account)
        if account.waiting_bytes + account.under_way + size > limit:
            raise OverBudget(
                f"what this token has written last is not folded yet; at most {limit >> 20} MiB may wait",
                hint="try again when Retry-After has passed; an operator may raise CREW_JOURNAL_TOKEN_WAITING_MB",
                budget="bytes waiting to be folded",
                setting="CREW_JOURNAL_TOKEN_WAITING_MB",
                retry_after_s=WAITING_RETRY_S,
            )

    def charge(self, account: _Account, seq: int, entries: int, size: int) -> None:
        """Count what was written up to ``seq``."""
        account.size += size
        account.entries += entries
        if self._folded is not None:
            account.waiting.append((seq, size))
            account.waiting_bytes += size
            if len(account.waiting) & _SETTLE_EVERY == 0:
                self._settle(account)

    def _settle(self, account: _Account) -> None:
        if self._folded is None:
            return
        waiting, folded = account.waiting, self._folded()
        while waiting and waiting[0][0] <= folded:
            account.waiting_bytes -= waiting.popleft()[1]


_SETTLE_EVERY: Final = 63
"""Mask of a number of writes between two settlings, so that an account without a bound stays small, too."""


class Spender:
    """The budgets of one request, in the context of its task."""

    __slots__ = ("_account", "_admitted", "_budgets")

    def __init__(self, budgets: Budgets, account: _Account) -> None:
        self._budgets = budgets
        self._account = account
        self._admitted = False

    def admit(self, size: int = 0) -> None:
        """Let the request write; its later writes are not refused, so that it is done as a whole or not at all.

        Args:
            size: Bytes that it is about to write, as far as known.

        Raises:
            OverBudget: If the token has used up a budget.
            EntryTooLarge: If the bytes are more than may ever wait.
        """
        if not self._admitted:
            self._budgets.admit(self._account, size)
            self._admitted = True

    def begin(self, size: int) -> None:
        """Reserve bytes that are being written; raises as ``admit``."""
        self.admit(size)
        self._account.under_way += size

    def end(self, size: int) -> None:
        """Release them: they were written, or failed."""
        self._account.under_way -= size

    def charge(self, seq: int, entries: int, size: int) -> None:
        """Count what was written, up to the sequence ``seq``."""
        self._budgets.charge(self._account, seq, entries, size)


SPENDER: Final[ContextVar[Spender | None]] = ContextVar("crew_journal_spender", default=None)
"""Whose budgets the writes of this task are charged to; None for the service's own and for tokens without budgets."""


def _used_up(budget: str, limit: str, level: float, bound: int) -> OverBudget:
    setting = (
        "CREW_JOURNAL_TOKEN_MB_PER_MINUTE" if budget.startswith("bytes") else "CREW_JOURNAL_TOKEN_ENTRIES_PER_MINUTE"
    )
    return OverBudget(
        f"this token has written {limit} within a minute, its maximum",
        hint=f"try again when Retry-After has passed; an operator may raise {setting}",
        budget=budget,
        setting=setting,
        retry_after_s=max(1.0, (level - bound) / bound * _MINUTE_S),
    )
