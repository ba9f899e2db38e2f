"""Tokens and their rights, as events in the journal; only SHA-256 hashes of the 256 random bits are stored.

Invariants: a token's rights come from one ``token.created`` and end with its ``token.revoked`` or when it expires; this
includes its rights on NATS (``token.nats_allowed``). Only the answer to the creation contains the plaintext. While the
view ``tokens`` is behind, it is not read, because it may contain tokens that were revoked later. The owner's token is
not an event but is stored in ``admin.token`` in the data directory, so that a new node can be administered.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog
from pydantic import ValidationError

from ...schemas.access import operations as ops
from ...schemas.access.events import TokenCreated, TokenNatsAllowed, TokenRevoked
from ...schemas.access.operations import NatsAccess, TokenCreatedAnswer, TokenRecord, TokenRequest
from ...schemas.catalogue import why_not_granted
from ...schemas.core.entry import ActorType
from ...schemas.core.envelope import EntryRecorded
from ...schemas.core.errors import (
    BrokerError,
    BrokerNotOurs,
    BrokerUnavailable,
    CrewJournalError,
    InvalidQuery,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    ViewsBehind,
    ViewsDamaged,
)
from ...schemas.core.grants import actor_of, persons_of
from ...schemas.core.ids import SYSTEM_WORKSPACE, uuid7_hex
from ...schemas.core.payload import ControlPayload
from ...schemas.core.ports import CommittedBatch, ViewReader
from ...schemas.core.principal import Principal, Role
from ...schemas.core.subjects import INGEST_SUBJECTS, ingest_subject
from ...schemas.core.timestamps import format_ms, to_ms
from ...schemas.entries.tables import ADMISSION_PROJECTION
from ...schemas.settings import MIN_SEQ_WAIT_S
from ..data_dir import make_private
from ..desk import Caller
from ..journal.broker.broker import ManagedBroker
from ..journal.broker.config import MAX_PAYLOAD, AgentUser
from ..journal.intake.append import Recorder
from ..node import Answers, Node
from ..parts import Part, end_task

# The text of tokens, and the owner's token of a data directory.
#
# Invariants: a token is 256 random bits, so a plain SHA-256 of it is as safe as a slower hash. The file is readable
# only by its owner from the start, and after a crash it is complete or absent.


OWNER_TOKEN_FILE: Final = "admin.token"
_RANDOM_BYTES: Final = 32
_TOKEN: Final = re.compile(r"cj_[A-Za-z0-9_-]{43}\Z", re.ASCII)
_PRIVATE: Final = 0o600


def is_token(text: str) -> bool:
    """Whether ``text`` has the form of a token."""
    return bool(_TOKEN.match(text))


def mint_token() -> str:
    """``cj_`` and 43 characters of ``[A-Za-z0-9_-]``: 256 random bits."""
    return "cj_" + secrets.token_urlsafe(_RANDOM_BYTES)


def token_hash(plaintext: str) -> str:
    """Hex SHA-256; with 256 random bits, a salt or a slow hash adds nothing."""
    return hashlib.sha256(plaintext.encode()).hexdigest()


def ensure_owner_token(data_dir: Path, minted: Callable[[str], None] = lambda _token: None) -> str:
    """The owner's token of this data directory; generated at the first start into a file that only its owner can read.

    Args:
        data_dir: The directory.
        minted: Called with a new token before its file appears.

    Raises:
        NotAllowed: If it is not a file, others could read it, or it does not hold a token.
    """
    path = data_dir / OWNER_TOKEN_FILE
    with contextlib.suppress(FileExistsError):
        make_private(data_dir)
        fresh = data_dir / f".{OWNER_TOKEN_FILE}.{secrets.token_hex(8)}"
        token = mint_token()
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "w") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            if not os.path.lexists(path):
                minted(token)
            os.link(fresh, path)  # atomic, and never overwrites an existing token
        finally:
            fresh.unlink()
    if not path.is_file():
        raise NotAllowed(f"{path} is not a file", hint="move it away; the next start writes a new token there")
    if path.stat().st_mode & ~_PRIVATE & 0o777:
        raise NotAllowed(f"{path} can be read by others", hint=f"chmod 600 {path}, or delete it for a new token")
    token = path.read_text("ascii", errors="replace").strip()
    if not _TOKEN.match(token):
        raise NotAllowed(f"{path} holds no token", hint="delete it; the next start writes a new one")
    return token


# Keeps the managed broker's users for agents equal to the tokens in the journal.
#
# Invariants: every user has a valid token and can use only the subject of its workspace, crew and agent. The password
# is the token itself; the broker gets a bcrypt hash of it. A change that the broker refuses is retried until it is
# accepted.


BCRYPT_ROUNDS: Final = 4
"""Minimum cost of bcrypt: a token of 256 random bits needs no slow hash, and the server computes it at each connection
(1 ms).
"""
RETRY_S: Final = 2.0
"""Seconds until a refused change is retried."""
SETTLE_S: Final = 40.0
"""Seconds to wait for a change: two reloads of at most 15 s, or a server that is restarting; usually 50 ms."""

_log = structlog.get_logger(__name__)


def bcrypt_hash(token: str) -> str:
    """The hash of a token that nats-server gets; takes 1 ms."""
    import bcrypt  # imported late, because only this function needs it

    return bcrypt.hashpw(token.encode(), bcrypt.gensalt(BCRYPT_ROUNDS)).decode()


def nats_user(bound: Principal, hashed: str) -> AgentUser:
    """The NATS user of an agent's token, which has a workspace and an agent.

    Raises:
        pydantic.ValidationError: If it has not.
    """
    named = {"name": bound.token_id, "bcrypt": hashed, "workspace_id": bound.workspace_id}
    return AgentUser.model_validate({**named, "agent_id": bound.agent_id, "crew_id": bound.crew_id})


def broker_not_ours(bound: Principal) -> BrokerNotOurs:
    """The error for a node with ``--nats``, which cannot create NATS users; it says how to configure the broker instead."""
    subject = ingest_subject(str(bound.workspace_id), bound.crew_id, str(bound.agent_id))
    agent = (
        f'AGENT-{bound.agent_id}: {{users: [{{user: {bound.agent_id}, password: "BCRYPT HASH", permissions: '
        f'{{publish: "{subject}", subscribe: "_INBOX.>"}}}}], '
        f'imports: [{{service: {{account: JOURNAL, subject: "{subject}"}}}}]}}'
    )
    return BrokerNotOurs(
        "the broker is not this node's own (--nats), so it cannot be given users",
        hint=f"put under accounts in its configuration: {agent}; JOURNAL is the account of the journal, with exports: "
        f'[{{service: "{INGEST_SUBJECTS}"}}]; reload it twice',
        field="nats",
    )


class NatsUsers(Part):
    """Keeps the users of a running managed broker equal to the wanted users."""

    def __init__(self, broker: ManagedBroker, *, retry_s: float = RETRY_S, settle_s: float = SETTLE_S) -> None:
        self._broker = broker
        self._retry_s = retry_s
        self._settle_s = settle_s
        self._wanted: tuple[AgentUser, ...] = broker.agent_users
        self._due = asyncio.Event()
        self._told = asyncio.Condition()
        self._trouble = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Where agents connect, ``nats://host:port``."""
        return self._broker.url

    def want(self, users: Sequence[AgentUser]) -> None:
        """Set the wanted users; the broker is reloaded in the background."""
        self._wanted = tuple(sorted(users, key=lambda user: user.name))
        self._due.set()

    async def start(self) -> None:
        """Send the current users to the broker, then follow changes.

        Raises:
            BrokerError: If it refuses.
        """
        await self._tell()
        self._task = asyncio.create_task(self._follow(), name="nats-users")

    async def stop(self) -> None:
        """Stop following changes."""
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)

    async def settled(self, name: str) -> None:
        """Return once the broker has added or removed the user ``name``, as wanted.

        Raises:
            BrokerUnavailable: If that takes too long; attempts continue.
        """
        try:
            async with asyncio.timeout(self._settle_s), self._told:
                await self._told.wait_for(lambda: _named(self._wanted, name) == _named(self._broker.agent_users, name))
        except TimeoutError:
            raise BrokerUnavailable(
                f"nats-server did not take {name} within {self._settle_s:g} s: {self._trouble or 'it is busy'}",
                hint="it is sent again until the server takes it; see crew-journal status",
            ) from None

    async def _follow(self) -> None:
        while True:
            await self._due.wait()
            try:
                await self._tell()
            except (BrokerError, OSError) as error:  # OSError: our own files, a full disk
                self._trouble = str(error)
                self._due.set()
                _log.error("nats_users.not_told", error=str(error), retry_in_s=self._retry_s)
                await asyncio.sleep(self._retry_s)

    async def _tell(self) -> None:
        self._due.clear()
        wanted = self._wanted
        if wanted != self._broker.agent_users:
            await self._broker.set_agent_users(wanted)
        self._trouble = ""
        async with self._told:
            self._told.notify_all()


def _named(users: Sequence[AgentUser], name: str) -> AgentUser | None:
    return next((user for user in users if user.name == name), None)


# Reads tokens from the view ``tokens``: valid tokens, and records for lists.


_COUNTING: Final = """SELECT token_id, sha256, role, workspace_id, crew_id, agent_id, nats_bcrypt, may_publish, speaks_for,
    expires_ms FROM tokens WHERE revoked_ms IS NULL"""
_FIELDS: Final = tuple(TokenRecord.model_fields)
_COLUMNS: Final = ", ".join("nats_bcrypt IS NOT NULL" if name == "nats" else name for name in _FIELDS)
_RECORDS: Final = f"SELECT {_COLUMNS} FROM tokens WHERE $1 IS NULL OR workspace_id = $1 ORDER BY created_ms, token_id"


@dataclass(frozen=True, slots=True)
class FoldedToken:
    """A token that is not revoked but may have expired: its hash, its principal, and its NATS user if there is one."""

    sha256: str
    bound: Principal
    user: AgentUser | None


def folded_tokens(views: ViewReader) -> Iterator[FoldedToken]:
    """Every token that is not revoked; blocking.

    Raises:
        ViewsDamaged: If a row cannot have been written by the fold.
    """
    for token_id, sha256, role, workspace_id, crew_id, agent_id, hashed, types, actors, expires_ms in views.rows(
        _COUNTING
    ):
        try:
            bound = Principal(
                token_id=token_id, role=Role(role), workspace_id=workspace_id, crew_id=crew_id, agent_id=agent_id,
                may_publish=tuple(types.split()), speaks_for=tuple(actors.splitlines()), expires_ms=expires_ms,
            )  # fmt: skip
            user = nats_user(bound, hashed) if hashed is not None else None
        except ValueError as error:
            raise ViewsDamaged(
                f"the views are damaged: table tokens, token {token_id}: not a row that the journal can contain",
                hint=ViewsDamaged.HINT,
            ) from error
        yield FoldedToken(sha256, bound, user)


def token_records(views: ViewReader, workspace_id: str | None) -> tuple[TokenRecord, ...]:
    """Every token of a workspace, or of all, oldest first, without secrets; blocking."""
    records = (dict(zip(_FIELDS, row, strict=True)) for row in views.rows(_RECORDS, (workspace_id,)))
    return tuple(
        TokenRecord.model_validate(
            {**record, "may_publish": record["may_publish"].split(), "speaks_for": record["speaks_for"].splitlines()}
        )
        for record in records
    )


# A new token: the recorded event, and the only answer with its secret.


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token; ``plaintext`` is not stored. ``nats_access`` if it is valid on NATS, too."""

    plaintext: str
    info: TokenRecord
    nats_access: NatsAccess | None = None

    def answer(self) -> TokenCreatedAnswer:
        """The answer to the caller."""
        return TokenCreatedAnswer(**self.info.model_dump(), token=self.plaintext, nats_access=self.nats_access)


def token_created(
    token_id: str, plaintext: str, workspace_id: str | None, request: TokenRequest, now: datetime
) -> TokenCreated:
    """The event that records a new token.

    A token that speaks for another actor, such as ``keeper``, and names no agent is bound to the agent of that name.

    Raises:
        InvalidQuery: If role, crew and agent do not fit together, a grant can never apply, or the token has already
            expired.
    """
    role, agent_id = request.role, request.agent_id
    others = len(request.speaks_for) > len(persons_of(request.speaks_for))
    if role.administers and (request.may_publish or others):
        field = "may_publish" if request.may_publish else "speaks_for"
        raise InvalidQuery(
            f"{role.value} tokens may publish all types and name all actors",
            hint=f"leave {field} out, or ask for role AGENT; speaks_for takes persons, like user:maria",
            field=field,
        )
    for refused in filter(None, map(why_not_granted, request.may_publish)):
        raise InvalidQuery(refused, hint="name types that a token can be granted, like keeper.*", field="may_publish")
    if request.expires_at is not None and request.expires_at <= now:
        raise InvalidQuery("expires_at is not in the future", hint="name a later time", field="expires_at")
    if agent_id is None and request.speaks_for and not role.administers:
        kind, name = actor_of(request.speaks_for[0])
        agent_id = name or kind
    try:
        payload = TokenCreated(
            token_id=token_id,
            sha256=token_hash(plaintext),
            workspace_id=workspace_id,
            agent_id=agent_id,
            **request.model_dump(include={"role", "crew_id", "label", "may_publish", "speaks_for", "expires_at"}),
        )
        payload.bearer()
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in problem["loc"]) or "role"
        raise InvalidQuery(
            problem["msg"].removeprefix("Value error, "),
            hint="AGENT needs agent_id, LEAD agent_id and crew_id; OWNER and ADMIN need neither",
            field=field,
        ) from None
    return payload


def workspace_for(principal: Principal, request: TokenRequest | ops.InvitePersonRequest) -> str | None:
    """The workspace of a requested token or account; None for all workspaces.

    Raises:
        NotAllowed: If the caller's role or workspace does not allow it.
        InvalidQuery: If both one and all workspaces are named.
    """
    if request.role is Role.OWNER and principal.role is not Role.OWNER:
        raise NotAllowed("only an OWNER makes OWNER tokens", hint="ask for role ADMIN, LEAD or AGENT", field="role")
    if request.all_workspaces and principal.workspace_id is not None:
        raise NotAllowed(
            "only a token of all workspaces makes another", hint="leave all_workspaces out", field="all_workspaces"
        )
    if request.all_workspaces and request.workspace_id:
        raise InvalidQuery(
            "workspace_id and all_workspaces exclude each other", hint="give one of the two", field="all_workspaces"
        )
    return None if request.all_workspaces else principal.workspace(request.workspace_id)


OWNER_TOKEN_ID: Final = "owner"
TOKENS_PROJECTION: Final = "tokens"
_TYPES: Final = frozenset({TokenCreated.ENTRY_TYPE, TokenNatsAllowed.ENTRY_TYPE, TokenRevoked.ENTRY_TYPE})
EXPIRY_CHECK_S: Final = 3_600.0
"""Maximum seconds between checks of NATS users' expiry, because the clock may be changed or the machine may sleep."""

log = structlog.get_logger(__name__)


class TokenRegistry:
    """Creates, checks and revokes tokens.

    Args:
        views: Gives the folded tokens and announces commits.
        journal: Records the facts.
        owner_token: Plaintext of the data directory's owner token.
        nats: Manages the broker's users; None if the broker is not managed.
        clock: The time, UTC, by which tokens expire.
        wait_s: Seconds to wait until the view shows a change.
    """

    def __init__(
        self,
        views: ViewReader,
        journal: Recorder,
        owner_token: str,
        *,
        nats: NatsUsers | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        wait_s: float = MIN_SEQ_WAIT_S,
    ) -> None:
        self._views = views
        self._journal = journal
        self._nats = nats
        self._clock = clock
        self._next_expiry: asyncio.TimerHandle | None = None
        self._wait_s = wait_s
        self._owner = Principal(token_id=OWNER_TOKEN_ID, role=Role.OWNER, workspace_id=None)
        self._owner_hash = token_hash(owner_token)
        self._by_hash: dict[str, Principal] = {}
        self._hash_of: dict[str, str] = {}
        self._nats_users: dict[str, AgentUser] = {}
        self._generation = views.generation
        self._loaded = False
        self._unsubscribe = views.subscribe(self._committed)

    def load(self) -> None:
        """Read the folded tokens; blocking, on the event loop's thread, so that no commit happens meanwhile.

        While the view is behind, the known tokens stay valid, because they were updated with every commit.

        Raises:
            ViewsDamaged: If a row cannot have been written by the fold.
        """
        if self._views.view_seq(TOKENS_PROJECTION) < self._views.view_seq(ADMISSION_PROJECTION):
            return
        self._generation = self._views.generation
        self._by_hash.clear()
        self._hash_of.clear()
        self._nats_users.clear()
        for token in folded_tokens(self._views):
            self._add(token.sha256, token.bound)
            if token.user is not None:
                self._nats_users[token.bound.token_id] = token.user
        self._loaded = True
        self._tell_broker()

    def close(self) -> None:
        """Stop following the journal."""
        self._unsubscribe()
        if self._next_expiry is not None:
            self._next_expiry.cancel()

    def authenticate(self, bearer: str) -> Principal:
        """The principal of this token; found by its hash, so timing reveals nothing about other tokens.

        Raises:
            NotAuthenticated: If the text is not a token, or the token is unknown or revoked (the same error for all
                three), or has expired.
            ViewsBehind: If the text has the form of a token, but the tokens have not been folded yet.
        """
        self._follow_swaps()
        if is_token(bearer):
            digest = token_hash(bearer)
            if digest == self._owner_hash:
                return self._owner
            if (principal := self._by_hash.get(digest)) is not None:
                if self._has_expired(principal):
                    raise NotAuthenticated(
                        f"the token {principal.token_id} expired at {format_ms(principal.expires_ms or 0)}",
                        hint="create another with `crew-journal token create`",
                    )
                return principal
            self._require_loaded()
        raise NotAuthenticated("the token is unknown or revoked", hint="send Authorization: Bearer cj_…")

    def bearer(self, token_id: str) -> Principal:
        """The principal of a token that was authenticated before.

        Raises:
            NotAuthenticated: If it was revoked or has expired since.
            ViewsBehind: If the tokens have not been folded yet.
        """
        if token_id == OWNER_TOKEN_ID:
            return self._owner
        self._require_loaded()
        if (known := self._bearer(token_id)) is None:
            raise NotAuthenticated("the token was revoked or has expired", hint="sign in with another token")
        return known

    def counts(self, token_id: str) -> bool:
        """Whether a token is still valid; for streamed answers such as the live tail."""
        self._follow_swaps()
        return token_id == OWNER_TOKEN_ID or self._bearer(token_id) is not None

    def _bearer(self, token_id: str) -> Principal | None:
        """The principal of a token that is neither revoked nor expired."""
        known = self._by_hash.get(self._hash_of.get(token_id, ""))
        return None if known is None or self._has_expired(known) else known

    def _has_expired(self, principal: Principal) -> bool:
        return principal.expires_ms is not None and principal.expires_ms <= to_ms(self._clock())

    def _follow_swaps(self) -> None:
        """Read again after a rebuild or a catch-up, which do not notify listeners."""
        if self._views.generation != self._generation or not self._loaded:
            self.load()

    def _require_loaded(self) -> None:
        """Raise unless all tokens are known.

        Raises:
            ViewsBehind: If they are still to be folded.
        """
        self._follow_swaps()
        if not self._loaded:
            raise ViewsBehind(
                f"the tokens are folded up to {self._views.view_seq(TOKENS_PROJECTION)} of"
                f" {self._views.view_seq(ADMISSION_PROJECTION)} so far",
                hint="try again; `crew-journal status` shows the view `tokens`",
            )

    async def create(self, principal: Principal, request: ops.TokenRequest) -> NewToken:
        """Create a token and wait until it is valid; an ADMIN cannot create an OWNER token.

        Raises:
            NotAllowed: If the caller's role or workspace does not allow it.
            InvalidQuery: If role, crew, agent, grants and ``nats`` do not fit together.
            BrokerNotOurs: If ``nats`` is set and this node does not manage the broker.
            BrokerError: If the broker did not accept the user; then the token is revoked again.
            ViewsBehind: If ``nats`` is set and the tokens have not been folded yet.
        """
        role, nats = request.role, request.nats
        workspace_id = workspace_for(principal, request)
        plaintext, token_id = mint_token(), f"t_{uuid7_hex()}"
        payload = token_created(token_id, plaintext, workspace_id, request, self._clock())
        bound = payload.bearer()
        if nats:
            self._check_nats(bound)
        summary = f"Token {token_id} of role {role.value} created"
        access, seq = None, await self._record(principal, workspace_id, payload, summary)
        self._add(payload.sha256, bound)
        if nats:
            try:
                access, seq = await self._allow_nats(principal, bound, plaintext)
            except BaseException:
                with contextlib.suppress(CrewJournalError):  # no caller has received the token
                    await self._end(principal, token_id, bound.workspace_id)
                raise
        await self._shown(seq)
        log.info("token.created", token_id=token_id, role=role.value, seq=seq, nats=nats)
        info = ops.TokenRecord(
            **payload.model_dump(exclude={"sha256", "expires_at"}),
            created_ms=to_ms(self._clock()),
            revoked_ms=None,
            nats=nats,
            expires_ms=bound.expires_ms,
        )
        return NewToken(plaintext, info, access)

    def _check_nats(self, bound: Principal) -> NatsUsers:
        if bound.role.administers:
            raise InvalidQuery(
                "only the token of one agent is valid on NATS",
                hint="ask for role AGENT or LEAD, with agent_id",
                field="nats",
            )
        if self._nats is None:
            raise broker_not_ours(bound)
        self._require_loaded()
        return self._nats

    async def _allow_nats(self, principal: Principal, bound: Principal, plaintext: str) -> tuple[ops.NatsAccess, int]:
        """Record that a token is also valid on NATS; returns the event's sequence once the broker has accepted the user."""
        nats = self._check_nats(bound)
        hashed = bcrypt_hash(plaintext)
        allowed = TokenNatsAllowed(token_id=bound.token_id, bcrypt=hashed)
        seq = await self._record(principal, bound.workspace_id, allowed, f"Token {bound.token_id} allowed on NATS")
        if bound.token_id not in self._hash_of:
            raise NotFound(f"token {bound.token_id} was revoked meanwhile", hint="make another one")
        user = self._allow(bound, hashed)
        await nats.settled(user.name)
        access = ops.NatsAccess(
            address=nats.address, user=user.name, password=plaintext, subject=user.subject, max_bytes=MAX_PAYLOAD
        )
        return access, seq

    async def revoke(self, principal: Principal, token_id: str) -> None:
        """Revoke a token; it is refused from the moment this returns, and its connections to the broker are closed.

        Raises:
            BrokerUnavailable: If the token is revoked but the broker has not been updated yet; this is retried.
            NotFound: If there is no such token in the caller's workspace.
            NotAllowed: If the asker's role does not allow it.
            ViewsBehind: If the tokens have not been folded yet.
        """
        if token_id == OWNER_TOKEN_ID and principal.workspace_id is None:
            raise NotAllowed(
                "the owner's token is a file, not a fact of the journal",
                hint=f"delete {OWNER_TOKEN_FILE} in the data directory and restart",
            )
        tokens = await self.list(principal)
        known = [info for info in tokens if info.token_id == token_id and info.revoked_ms is None]
        if not known:
            raise NotFound(f"no token {token_id[:64]}", hint="crew-journal token list shows them")
        if known[0].role is Role.OWNER and principal.role is not Role.OWNER:
            raise NotAllowed("only an OWNER revokes OWNER tokens", hint="use an OWNER token")
        seq = await self._end(principal, token_id, known[0].workspace_id)
        log.info("token.revoked", token_id=token_id, seq=seq)
        if known[0].nats and self._nats is not None:
            await self._nats.settled(token_id)

    async def _end(self, principal: Principal, token_id: str, workspace_id: str | None) -> int:
        revoked = TokenRevoked(token_id=token_id)
        seq = await self._record(principal, workspace_id, revoked, f"Token {token_id} revoked")
        self._drop(token_id)
        await self._shown(seq)
        return seq

    async def _record(
        self, principal: Principal, workspace_id: str | None, payload: ControlPayload, summary: str
    ) -> int:
        where, actor = workspace_id or SYSTEM_WORKSPACE, ActorType.USER
        recorded = await self._journal.record(
            where, payload, summary=summary, actor_type=actor, actor_id=principal.actor
        )
        return recorded.seq

    async def list(self, principal: Principal, workspace: str | None = None) -> tuple[ops.TokenRecord, ...]:
        """Every token of the caller's workspace (of all workspaces if a token for all names none).

        Raises:
            NotAllowed: If the caller's role or workspace does not allow it.
            ViewsBehind: If the tokens have not been folded yet.
        """
        self._require_loaded()
        return await asyncio.to_thread(token_records, self._views, principal.workspace_or_all(workspace))

    async def _shown(self, seq: int) -> None:
        """Wait for the view. A late view is not an error, because the event is acked."""
        try:
            await self._views.wait_for(seq, self._wait_s, TOKENS_PROJECTION)
        except ViewsBehind:
            log.warning("token.view_is_late", seq=seq)

    def _committed(self, batch: CommittedBatch) -> None:
        for event in batch.entries:
            if event.control and event.entry.entry_type in _TYPES:
                self._learn(event)

    def _learn(self, event: EntryRecorded) -> None:
        """Apply an event like the fold of ``tokens``: only events of the system or of a workspace affect its tokens."""
        kind, payload = event.entry.entry_type, event.entry.payload
        try:
            if kind == TokenCreated.ENTRY_TYPE:
                token_created = TokenCreated.model_validate(payload)
                if (
                    event.workspace_id in (SYSTEM_WORKSPACE, token_created.workspace_id)
                    and token_created.token_id not in self._hash_of
                ):
                    self._add(token_created.sha256, token_created.bearer())
                return
            fact = (TokenRevoked if kind == TokenRevoked.ENTRY_TYPE else TokenNatsAllowed).model_validate(payload)
        except ValueError:  # includes pydantic's error; the fold parks such an event with the reason
            log.error("token.fact_is_not_valid", seq=event.seq)
            return
        known = self._by_hash.get(self._hash_of.get(fact.token_id, ""))
        if known is None or event.workspace_id not in (SYSTEM_WORKSPACE, known.workspace_id):
            return
        if isinstance(fact, TokenNatsAllowed):
            self._allow(known, fact.bcrypt)
        else:
            self._drop(fact.token_id)

    def _add(self, sha256: str, principal: Principal) -> None:
        self._by_hash[sha256] = principal
        self._hash_of[principal.token_id] = sha256

    def _allow(self, bound: Principal, hashed: str) -> AgentUser:
        user = nats_user(bound, hashed)
        if self._nats_users.get(user.name) != user:
            self._nats_users[user.name] = user
            self._tell_broker()
        return user

    def _drop(self, token_id: str) -> None:
        sha256 = self._hash_of.pop(token_id, None)
        if sha256 is not None:
            self._by_hash.pop(sha256, None)
        if self._nats_users.pop(token_id, None) is not None:
            self._tell_broker()

    def _tell_broker(self) -> None:
        if self._nats is None or not self._loaded:  # until then the broker has the users of the last run
            return
        counting = {name: known for name in self._nats_users if (known := self._bearer(name)) is not None}
        self._nats.want(tuple(self._nats_users[name] for name in counting))
        if self._next_expiry is not None:
            self._next_expiry.cancel()
            self._next_expiry = None
        ends = [known.expires_ms for known in counting.values() if known.expires_ms is not None]
        if ends:
            wait_s = (min(ends) - to_ms(self._clock())) / 1_000
            self._next_expiry = asyncio.get_running_loop().call_later(min(wait_s, EXPIRY_CHECK_S), self._tell_broker)


class Tokens:
    """The operations on tokens."""

    def __init__(self, node: Node) -> None:
        self._registry = node.use(TokenRegistry)

    async def create(self, caller: Caller, request: ops.TokenRequest) -> ops.TokenCreatedAnswer:
        """Create a token; raises as ``TokenRegistry.create``."""
        return (await self._registry.create(caller.principal, request)).answer()

    async def list(self, caller: Caller, request: ops.TokensRequest) -> ops.TokensAnswer:
        """The tokens; raises as ``TokenRegistry.list``."""
        return ops.TokensAnswer(tokens=await self._registry.list(caller.principal, request.workspace_id))

    async def revoke(self, caller: Caller, request: ops.RevokeTokenRequest) -> ops.TokenRevokedAnswer:
        """Revoke a token; raises as ``TokenRegistry.revoke``."""
        await self._registry.revoke(caller.principal, request.token_id)
        return ops.TokenRevokedAnswer(token_id=request.token_id)


ANSWERS: Final[Answers] = (
    (ops.CREATE_TOKEN, Tokens.create),
    (ops.TOKENS, Tokens.list),
    (ops.REVOKE_TOKEN, Tokens.revoke),
)
