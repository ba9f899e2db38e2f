"""Limits what an agent's token may write: bytes and entries per minute, and bytes that wait to be folded.

Folding is slower than appending, and the views of all workspaces fold one stream in order. Without limits, entries that
one agent wrote in 20 s delayed the documents of another workspace by six minutes.

Invariants: a request is refused before its first write or not at all; all its writes are charged. Tokens of role OWNER
and ADMIN and the service's own writes have no budgets. The writer charges the budgets, so that every write is counted.
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
"""Maximum number of accounts in memory, about 500 bytes each; the least recently used account is dropped first."""
WAITING_RETRY_S: Final = 2.0
"""``Retry-After`` in seconds for a token with too many unfolded bytes; about 2 MiB are folded in this time."""
_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Budgets of one token; 0 means no limit.

    Attributes:
        bytes_per_minute: Bytes of entries and documents.
        entries_per_minute: Number of entries and documents.
        waiting_bytes: Bytes that are not folded yet; also the maximum for one request.
    """

    bytes_per_minute: int = TOKEN_MB_PER_MINUTE << 20
    entries_per_minute: int = TOKEN_ENTRIES_PER_MINUTE
    waiting_bytes: int = TOKEN_WAITING_MB << 20

    @classmethod
    def of(cls, settings: Settings) -> BudgetLimits:
        """The limits of a node."""
        return cls(
            settings.token_mb_per_minute << 20, settings.token_entries_per_minute, settings.token_waiting_mb << 20
        )


@dataclass(slots=True)
class _Account:
    """The writes of one token.

    Attributes:
        size: Bytes that count for the last minute; they decrease steadily.
        entries: Likewise.
        at: Time of the last update of both.
        waiting: Sequence and bytes of each write that may not be folded yet.
        waiting_bytes: Their sum.
        under_way: Bytes of unacked writes.
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
            key: Key of the account; the token's id if absent.
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
            EntryTooLarge: If the bytes exceed the limit of waiting bytes.
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
        """Charge writes up to the sequence ``seq``."""
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
"""Mask for the number of writes between two clean-ups, so that an account without a limit stays small, too."""


class Spender:
    """The budgets of one request, in the context of its task."""

    __slots__ = ("_account", "_admitted", "_budgets")

    def __init__(self, budgets: Budgets, account: _Account) -> None:
        self._budgets = budgets
        self._account = account
        self._admitted = False

    def admit(self, size: int = 0) -> None:
        """Admit the request; its later writes are not refused, so that it is done completely or not at all.

        Args:
            size: Bytes that it is about to write, as far as known.

        Raises:
            OverBudget: If the token has used up a budget.
            EntryTooLarge: If the bytes exceed the limit of waiting bytes.
        """
        if not self._admitted:
            self._budgets.admit(self._account, size)
            self._admitted = True

    def begin(self, size: int) -> None:
        """Reserve bytes that are being written; raises as ``admit``."""
        self.admit(size)
        self._account.under_way += size

    def end(self, size: int) -> None:
        """Release reserved bytes that were written or failed."""
        self._account.under_way -= size

    def charge(self, seq: int, entries: int, size: int) -> None:
        """Charge writes up to the sequence ``seq``."""
        self._budgets.charge(self._account, seq, entries, size)


SPENDER: Final[ContextVar[Spender | None]] = ContextVar("crew_journal_spender", default=None)
"""The budgets to which this task's writes are charged; None for the service and for tokens without budgets."""


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
