"""Accounts of people who sign in to the pages by name, and the sessions of the pages.

Invariants: an account's rights come from ``account.invited`` and end with ``account.removed``; both are events, read from
the view ``accounts`` with every request. A password is in no event: its Argon2id hash is in ``passwords.json`` in the data
directory, which has no hash of a removed account. A session remembers the sequence of the password with which it began,
and ends when another is set. Guessing is slow: passwords are checked one at a time, and failures are limited for each name
and for all names together.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import re
import secrets
import threading
import time
import unicodedata
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from operator import ne
from pathlib import Path
from typing import Final

import structlog
from pydantic import ValidationError

from ...schemas.access import operations as ops
from ...schemas.access.events import AccountInvited, AccountPasswordSet, AccountRemoved
from ...schemas.access.tables import ACCOUNTS, TOKENS_PROJECTION, AccountRow
from ...schemas.core.entry import ActorType
from ...schemas.core.errors import (
    EntryConflict,
    InvalidQuery,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    OverBudget,
    ViewsBehind,
)
from ...schemas.core.grants import USER, is_person, person_of
from ...schemas.core.ids import SYSTEM_WORKSPACE, slug_of, uuid7_hex
from ...schemas.core.ports import CommittedBatch
from ...schemas.core.principal import Principal, Role
from ...schemas.core.timestamps import to_ms
from ...schemas.entries.tables import ADMISSION_PROJECTION, ENTRIES
from ..data_dir import PASSWORDS_BYTES, PASSWORDS_FILE, small_file, write_private
from ..desk import Caller
from ..node import Answers, Node
from .tokens import OWNER_TOKEN_ID, TokenRegistry, workspace_for

JOIN_PATH: Final = "/ui/join/"
"""Path of the links of invitations; the secret follows it."""
LIFE_S: Final = 12 * 3_600
"""Lifetime of a session in seconds: a working day."""
SESSIONS_PER_TOKEN: Final = 16
"""Maximum sessions of a token or account; a further session ends the oldest."""
FAILURES_A_MINUTE: Final = 30
"""Maximum sign-ins per minute that fail, of all names, before further ones are refused without a check. A valid token
always works.
"""
FAILURES_A_NAME: Final = 10
"""Maximum sign-ins with a wrong password for a name within ``NAME_S``: 1,440 guesses a day."""
NAME_S: Final = 600.0
LEAST_PASSWORD: Final = 12
"""Fewest characters of a password; NIST SP 800-63B-4 asks for 15 without a second factor and allows 8 with one."""
MOST_PASSWORD: Final = 256
_MINUTE_S: Final = 60.0
_PROGRAM: Final = 200
"""Most characters of a browser's name that are kept."""
_PLACE_BYTES: Final = 16
_SECRET_BYTES: Final = 32
_TAKEN: Final = re.compile(r"[at]_[0-9a-f]{32}")
"""Ids of tokens and accounts, under which others decide."""
_ENDING: Final = frozenset((AccountPasswordSet.ENTRY_TYPE, AccountRemoved.ENTRY_TYPE))
_ID: Final = f"SELECT id FROM {ENTRIES} WHERE seq = ?"
_SET: Final = "p_"
"""Begins the ids of the events of passwords; events of earlier versions have other ids."""
_ALL: Final = f"SELECT {ACCOUNTS.names} FROM {ACCOUNTS} WHERE removed_ms IS NULL"
_log = structlog.get_logger(__name__)


# Sessions of pages.


@dataclass(slots=True)
class Session:
    """A session of pages.

    Attributes:
        session_id: Its name in lists; worth nothing to a visitor.
        place: The secret part of its paths.
        principal: Who signed in; its rights are read again with every request.
        password_seq: The sequence of the password with which it began; None if it began with a token.
        digest: SHA-256 of the id in its cookie.
        code: The code in its forms.
        program: What the browser calls itself.
        began: When it began, seconds since the epoch.
        used: When a page of it was last requested.
    """

    session_id: str
    place: str
    principal: Principal
    password_seq: int | None
    digest: bytes
    code: str
    program: str
    began: float
    used: float

    @property
    def ends(self) -> float:
        """When it ends, seconds since the epoch."""
        return self.began + LIFE_S

    def record(self) -> ops.SessionRecord:
        """The session without its secrets."""
        known = self.principal
        return ops.SessionRecord(
            session_id=self.session_id,
            person=known.person,
            token_id=known.token_id,
            role=known.role,
            workspace_id=known.workspace_id,
            program=self.program,
            began_ms=int(self.began * 1_000),
            used_ms=int(self.used * 1_000),
            ends_ms=int(self.ends * 1_000),
        )


class Sessions:
    """The sessions of a node, in memory: they end with the process.

    Args:
        clock: Seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._by_place: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._by_place)

    def begin(self, principal: Principal, password_seq: int | None = None, program: str = "") -> tuple[Session, str]:
        """Start a session; returns it and the id for its cookie, which is not stored."""
        now = self._clock()
        self._by_place = {place: session for place, session in self._by_place.items() if session.ends > now}
        mine = [session for session in self._by_place.values() if session.principal.token_id == principal.token_id]
        for session in mine[: max(0, len(mine) + 1 - SESSIONS_PER_TOKEN)]:
            self.end(session)
        cookie, place = secrets.token_urlsafe(_SECRET_BYTES), secrets.token_urlsafe(_PLACE_BYTES)
        session = Session(
            f"s_{uuid7_hex()}",
            place,
            principal,
            password_seq,
            hashlib.sha256(cookie.encode()).digest(),
            secrets.token_hex(_SECRET_BYTES),
            program[:_PROGRAM],
            now,
            now,
        )
        self._by_place[place] = session
        return session, cookie

    async def find(
        self, place: str, cookie: str, bearer: Callable[[Session], Awaitable[Principal]]
    ) -> tuple[Principal, Session]:
        """The session at a place, if the id in its cookie matches and its token or account still counts.

        Args:
            place: The place.
            cookie: The id.
            bearer: Returns the present rights of a session, or raises ``NotAuthenticated``.

        Raises:
            NotAuthenticated: If there is none.
            ViewsBehind: If the tokens have not been folded yet.
        """
        session = self._by_place.get(place)
        if session is None or not hmac.compare_digest(hashlib.sha256(cookie.encode()).digest(), session.digest):
            raise NotAuthenticated("not signed in", hint="sign in with a name and password, or with a token")
        try:
            now = self._clock()
            if session.ends <= now:
                raise NotAuthenticated("the session has ended", hint="sign in again")
            principal = await bearer(session)
        except NotAuthenticated:
            self.end(session)
            raise
        session.principal, session.used = principal, now
        return principal, session

    def end(self, session: Session) -> None:
        """End a session."""
        self._by_place.pop(session.place, None)

    def end_of(self, account_id: str, seq: int) -> None:
        """End the sessions of an account, except those that began with the password of this sequence."""
        for session in [*self._by_place.values()]:
            if session.principal.token_id == account_id and session.password_seq != seq:
                self.end(session)

    def seen_by(self, principal: Principal) -> list[Session]:
        """The sessions that a caller may see and end: its own; for OWNER, all of the workspace."""
        now = self._clock()
        return [
            session
            for session in self._by_place.values()
            if session.ends > now
            and (
                session.principal.token_id == principal.token_id
                or (principal.role is Role.OWNER and principal.workspace_id in (None, session.principal.workspace_id))
            )
        ]


class Failures:
    """Sign-ins that failed.

    Args:
        clock: Seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._failed: deque[tuple[float, str]] = deque()

    def admit(self, name: str = "") -> None:
        """Refuse an attempt after too many failures.

        Args:
            name: The name; empty for a token, which nobody can guess.

        Raises:
            OverBudget: If there were too many for this name, or too many within a minute.
        """
        now = self._clock()
        while self._failed and self._failed[0][0] <= now - NAME_S:
            self._failed.popleft()
        of_name = [at for at, failed in self._failed if name and failed == name]
        in_minute = [at for at, _ in self._failed if at > now - _MINUTE_S]
        waits = [0.0]
        if len(of_name) >= FAILURES_A_NAME:
            waits.append(of_name[-FAILURES_A_NAME] + NAME_S - now)
        if len(in_minute) >= FAILURES_A_MINUTE:
            waits.append(in_minute[-FAILURES_A_MINUTE] + _MINUTE_S - now)
        if (wait_s := max(waits)) > 0:
            raise OverBudget(
                "too many sign-ins failed",
                hint="wait, or sign in with a token, which is accepted at once",
                budget="sign-ins",
                retry_after_s=wait_s,
            )

    def add(self, name: str = "") -> None:
        """Count a failure."""
        self._failed.append((self._clock(), name))

    def clear(self, name: str) -> None:
        """Forget the failures of a name, after a right password."""
        self._failed = deque(failure for failure in self._failed if failure[1] != name)


# Passwords.


ARGON2: Final = (3, 4, 64 * 1024)
"""Iterations, lanes and memory in KiB. RFC 9106, section 4: the second recommended choice."""


def password_hash(password: str) -> str:
    """The Argon2id hash with a salt of its own; blocking, 0.2 s of CPU and 64 MiB."""
    from cryptography.hazmat.primitives.kdf.argon2 import Argon2id  # imported late, because most nodes have no accounts

    iterations, lanes, memory_kib = ARGON2
    kdf = Argon2id(salt=os.urandom(16), length=32, iterations=iterations, lanes=lanes, memory_cost=memory_kib)
    return kdf.derive_phc_encoded(_normalised(password))


def is_password(password: str, hashed: str) -> bool:
    """Whether a hash is of this password; blocking, as ``password_hash``."""
    from cryptography.exceptions import InvalidKey
    from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

    try:
        Argon2id.verify_phc_encoded(_normalised(password), hashed)
    except InvalidKey:
        return False
    return True


@cache
def _nobodys() -> str:
    """A hash that is checked for unknown names, so that an answer takes as long as for a known one."""
    return password_hash(secrets.token_hex(_SECRET_BYTES))


def _normalised(password: str) -> bytes:
    return unicodedata.normalize("NFKC", password).encode()


def check_password(password: str) -> None:
    """Refuse a new password that is too short or too long.

    Raises:
        InvalidQuery: If it is.
    """
    if not LEAST_PASSWORD <= len(password) <= MOST_PASSWORD:
        raise InvalidQuery(
            f"the password has {len(password)} characters",
            hint=f"use {LEAST_PASSWORD} to {MOST_PASSWORD} characters, for example four words",
            field="password",
        )


class Passwords:
    """The file with the hashes of passwords, by account."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / PASSWORDS_FILE
        self._lock = threading.Lock()

    def read(self) -> dict[str, str]:
        """Account → hash; blocking."""
        content = small_file(self._path, PASSWORDS_BYTES)
        return {} if content is None else {str(name): str(hashed) for name, hashed in json.loads(content).items()}

    def set(self, account_id: str, hashed: str) -> None:
        """Keep a hash; blocking."""
        with self._lock:
            self._write({**self.read(), account_id: hashed})

    def keep(self, is_kept: Callable[[str], bool]) -> None:
        """Delete the hashes of all other accounts; blocking."""
        with self._lock:
            known = self.read()
            kept = {account_id: hashed for account_id, hashed in known.items() if is_kept(account_id)}
            if kept != known:
                self._write(kept)

    def _write(self, hashes: Mapping[str, str]) -> None:
        write_private(self._path, json.dumps(hashes, indent=1) + "\n")


def _set_with(hashed: str) -> str:
    """The id of the event with which a password is set: from it, a node sees that another node has set another."""
    return f"{_SET}{_sha256(hashed)[:32]}"


# The use-cases.


class Accounts:
    """Invites people, lets them sign in, and ends their sessions."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tokens = node.use(TokenRegistry)
        self._passwords = Passwords(node.settings.data_dir)
        self.sessions = Sessions()
        self.failures = Failures()
        self._deciding = asyncio.Lock()
        self._checking = asyncio.Lock()
        node.ends.callback(node.views.subscribe(self._committed))

    async def prune(self) -> None:
        """Delete the hashes of accounts that were removed while this node did not run."""
        try:
            accounts = await self._all()
        except ViewsBehind:
            return
        await asyncio.to_thread(self._passwords.keep, {account.account_id for account in accounts}.__contains__)

    def _committed(self, batch: CommittedBatch) -> None:
        for event in batch.entries:
            if not event.control or event.entry.entry_type not in _ENDING:
                continue
            account_id = str(event.entry.payload.get("account_id"))
            self.sessions.end_of(account_id, event.seq)
            if event.entry.entry_type == AccountRemoved.ENTRY_TYPE:
                try:
                    self._passwords.keep(partial(ne, account_id))
                except (OSError, ValueError) as error:
                    _log.error("password.not_deleted", seq=event.seq, error=type(error).__name__)

    # operations

    async def invite(self, caller: Caller, request: ops.InvitePersonRequest) -> ops.PersonInvitedAnswer:
        """Invite a person, or make a new link for one.

        Raises:
            NotAllowed: If the caller's role or workspace does not allow it.
            InvalidQuery: If the name cannot be one of a person, or role, crew and agent do not fit together.
            EntryConflict: If the name belongs to an account of another workspace.
        """
        workspace_id = workspace_for(caller.principal, request)
        person, role = request.person.strip(), request.role
        if not is_person(person) or person_of(person) == OWNER_TOKEN_ID or _TAKEN.fullmatch(person):
            raise InvalidQuery(f"{person!r} names no person", hint="use a name or an address", field="person")
        async with self._deciding:
            known = await self._named(person)
            if known is not None:
                if known.workspace_id != workspace_id:
                    raise EntryConflict(
                        f"the name {person} is taken", hint="choose another, or remove that account first"
                    )
                _check_may_decide(caller.principal, known)
            secret = secrets.token_urlsafe(_SECRET_BYTES)
            expires_at = self._node.clock() + timedelta(hours=request.hours)
            try:
                invited = AccountInvited(
                    account_id=known.account_id if known is not None else f"a_{uuid7_hex()}",
                    person=known.person if known is not None else person,
                    role=role,
                    workspace_id=workspace_id,
                    crew_id=request.crew_id,
                    agent_id=request.agent_id or (None if role.administers else slug_of(person)),
                    link_sha256=_sha256(secret),
                    link_expires_at=expires_at,
                )
                invited.bearer()
            except ValidationError as error:
                problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
                raise InvalidQuery(
                    problem["msg"].removeprefix("Value error, "),
                    hint="LEAD needs crew_id; LEAD and AGENT take agent_id; OWNER and ADMIN need neither",
                    field="role",
                ) from None
            summary = f"{invited.person} is invited as {role.value}"
            await self._node.decide(
                caller, invited, summary, TOKENS_PROJECTION, workspace_id=workspace_id or SYSTEM_WORKSPACE
            )
        return ops.PersonInvitedAnswer(
            account_id=invited.account_id,
            person=invited.person,
            role=role,
            workspace_id=workspace_id,
            path=f"{JOIN_PATH}{secret}",
            expires_ms=to_ms(expires_at),
            again=known is not None,
        )

    async def list_accounts(self, caller: Caller, request: ops.AccountsRequest) -> ops.AccountsAnswer:
        """The accounts of the caller's workspace, of all workspaces if a token for all names none."""
        where = caller.principal.workspace_or_all(request.workspace_id)
        now_ms = to_ms(self._node.clock())
        found = [account for account in await self._all() if where in (None, account.workspace_id)]
        return ops.AccountsAnswer(
            accounts=tuple(
                ops.AccountRecord(
                    account_id=account.account_id,
                    person=account.person,
                    role=Role(account.role),
                    workspace_id=account.workspace_id,
                    crew_id=account.crew_id,
                    agent_id=account.agent_id,
                    invited_ms=account.invited_ms,
                    joined=account.password_seq is not None,
                    link_expires_ms=account.link_expires_ms
                    if account.link_sha256 and account.link_expires_ms > now_ms
                    else None,
                )
                for account in sorted(found, key=lambda account: person_of(account.person))
            )
        )

    async def remove(self, caller: Caller, request: ops.RemoveAccountRequest) -> ops.AccountRemovedAnswer:
        """Remove an account.

        Raises:
            NotFound: If the caller's workspace has no such account.
            NotAllowed: If it is the account of an OWNER, and the caller is none.
        """
        account = await self._named(request.person)
        if account is None or caller.principal.workspace_id not in (None, account.workspace_id):
            raise NotFound(f"no account of {request.person[:128]}", hint="`crew-journal account list` shows them")
        await self._remove(caller, account)
        return ops.AccountRemovedAnswer(person=account.person)

    async def remove_person(self, caller: Caller | None, workspace_id: str, is_named: Callable[[str], bool]) -> None:
        """Remove the accounts of a person who is erased in a workspace.

        An account for all workspaces is removed if the caller is an OWNER of all workspaces.

        Raises:
            NotAllowed: If it is the account of an OWNER, and the caller is none.
        """
        owns_all = caller is None or caller.principal.workspace_id is None
        for account in await self._all():
            here = account.workspace_id == workspace_id or (account.workspace_id is None and owns_all)
            if here and is_named(account.person):
                await self._remove(caller, account)

    async def _remove(self, caller: Caller | None, account: AccountRow) -> None:
        if caller is not None:
            _check_may_decide(caller.principal, account)
        removed = AccountRemoved(account_id=account.account_id, person=account.person)
        where = account.workspace_id or SYSTEM_WORKSPACE
        summary = f"the account of {account.person} is removed"
        await self._node.decide(caller, removed, summary, TOKENS_PROJECTION, workspace_id=where)

    async def list_sessions(self, caller: Caller, _asked: ops.SessionsRequest) -> ops.SessionsAnswer:
        """The sessions that the caller may end."""
        return ops.SessionsAnswer(
            sessions=tuple(session.record() for session in self.sessions.seen_by(caller.principal))
        )

    async def end_session(self, caller: Caller, request: ops.EndSessionRequest) -> ops.SessionEndedAnswer:
        """End a session.

        Raises:
            NotFound: If the caller may see no such session.
        """
        for session in self.sessions.seen_by(caller.principal):
            if session.session_id == request.session_id:
                self.sessions.end(session)
                return ops.SessionEndedAnswer(session_id=session.session_id)
        raise NotFound(f"no session {request.session_id[:64]}", hint="`crew-journal account sessions` shows them")

    # for the pages

    async def sign_in(self, name: str, password: str) -> tuple[Principal, int]:
        """The rights of the person with this name and password, and the sequence of the password.

        Raises:
            NotAuthenticated: If the name or the password is wrong: the same error for both.
            OverBudget: If too many sign-ins failed.
            ViewsBehind: If the accounts have not been folded yet.
        """
        async with self._checking:
            person = person_of(name)
            self.failures.admit(person)
            account = await self._named(name)
            hashes = await asyncio.to_thread(self._passwords.read)
            hashed = None if account is None else hashes.get(account.account_id)
            if account is not None and hashed is not None and not await self._is_last(account, hashed):
                hashed = None  # another was set at another node
            right = await asyncio.to_thread(lambda: is_password(password[:MOST_PASSWORD], hashed or _nobodys()))
            if account is None or account.password_seq is None or hashed is None or not right:
                self.failures.add(person)
                raise NotAuthenticated(
                    "name or password is wrong", hint="an OWNER makes a new link with `crew-journal invite NAME`"
                )
            self.failures.clear(person)
            return _principal_of(account), account.password_seq

    async def invited(self, secret: str) -> AccountRow:
        """The account to which a link belongs.

        Raises:
            NotFound: If the link is wrong, expired or used: the same error for all three.
        """
        digest, now_ms = _sha256(secret), to_ms(self._node.clock())
        for account in await self._all():
            if account.link_sha256 == digest and account.link_expires_ms > now_ms:
                return account
        raise NotFound("the link has expired or was used", hint="ask an OWNER for another: `crew-journal invite NAME`")

    async def join(self, secret: str, password: str) -> tuple[Principal, int]:
        """Set the password of an invited person, which ends the link.

        Raises:
            NotFound: As ``invited``.
            InvalidQuery: If the password is too short or too long.
        """
        check_password(password)
        async with self._checking:
            return await self._set_password(await self.invited(secret), password)

    async def change_password(self, principal: Principal, former: str, password: str) -> tuple[Principal, int]:
        """Set another password; all sessions of the person end.

        Raises:
            NotAllowed: If the caller did not sign in with a password.
            NotAuthenticated: If the former password is wrong.
            OverBudget: If too many sign-ins failed.
            InvalidQuery: If the new password is too short or too long.
        """
        if principal.person is None:
            raise NotAllowed("a token has no password", hint="sign in with a name and password")
        check_password(password)
        await self.sign_in(principal.person, former)
        async with self._checking:
            account = await self._named(principal.person)
            if account is None:
                raise NotAuthenticated("the account was removed", hint="ask an OWNER for a new one")
            return await self._set_password(account, password)

    async def _set_password(self, account: AccountRow, password: str) -> tuple[Principal, int]:
        hashed = await asyncio.to_thread(password_hash, password)
        await asyncio.to_thread(self._passwords.set, account.account_id, hashed)
        decided = await self._node.decide(
            None,
            AccountPasswordSet(account_id=account.account_id, person=account.person),
            f"{account.person} set a password",
            workspace_id=account.workspace_id or SYSTEM_WORKSPACE,
            entry_id=_set_with(hashed),
            actor_type=ActorType.USER,
            actor_id=account.person,
        )
        await self._node.views.wait_for(decided.seq, self._node.wait_s, TOKENS_PROJECTION)
        return _principal_of(account), decided.seq

    async def _is_last(self, account: AccountRow, hashed: str) -> bool:
        """Whether the last event of the account's password is that of this hash."""
        rows = await asyncio.to_thread(self._node.views.rows, _ID, [account.password_seq])
        return all(not entry_id.startswith(_SET) or entry_id == _set_with(hashed) for (entry_id,) in rows)

    async def bearer(self, session: Session) -> Principal:
        """The present rights of a session.

        Raises:
            NotAuthenticated: If its token was revoked or has expired, its account was removed, or its password was
                changed.
            ViewsBehind: If the tokens have not been folded yet.
        """
        if session.password_seq is None:
            return self._tokens.bearer(session.principal.token_id)
        for account in await self._all():
            if account.account_id == session.principal.token_id and account.password_seq == session.password_seq:
                return _principal_of(account)
        raise NotAuthenticated("the account or its password has changed", hint="sign in again")

    async def _named(self, name: str) -> AccountRow | None:
        person = person_of(name)
        return next((account for account in await self._all() if person_of(account.person) == person), None)

    async def _all(self) -> list[AccountRow]:
        """Every account that was not removed.

        Raises:
            ViewsBehind: If the accounts have not been folded yet.
        """
        views = self._node.views
        folded, head = views.view_seq(TOKENS_PROJECTION), views.view_seq(ADMISSION_PROJECTION)
        if folded < head:
            raise ViewsBehind(
                f"the accounts are folded up to {folded} of {head} so far",
                hint="try again; `crew-journal status` shows the view `tokens`",
            )
        return [AccountRow(*row) for row in await asyncio.to_thread(views.rows, _ALL)]


def _principal_of(account: AccountRow) -> Principal:
    return Principal(
        token_id=account.account_id,
        role=Role(account.role),
        workspace_id=account.workspace_id,
        crew_id=account.crew_id,
        agent_id=account.agent_id,
        speaks_for=(f"{USER}:{account.person}",),
        person=account.person,
    )


def _check_may_decide(principal: Principal, account: AccountRow) -> None:
    if account.role == Role.OWNER.value and principal.role is not Role.OWNER:
        raise NotAllowed("only an OWNER decides about an OWNER's account", hint="ask an OWNER")


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


ANSWERS: Final[Answers] = (
    (ops.INVITE_PERSON, Accounts.invite),
    (ops.ACCOUNTS, Accounts.list_accounts),
    (ops.REMOVE_ACCOUNT, Accounts.remove),
    (ops.SESSIONS, Accounts.list_sessions),
    (ops.END_SESSION, Accounts.end_session),
)
