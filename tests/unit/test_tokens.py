"""Tokens follow the views, also where the views changed without a commit: rebuild, catch-up, swap."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.events import at, control
from support.journal import eventually

from crew_journal.schemas.access.events import TokenCreated, TokenRevoked
from crew_journal.schemas.access.operations import CREATE_TOKEN, TokenRequest
from crew_journal.schemas.core.envelope import EntryRecorded
from crew_journal.schemas.core.errors import InvalidQuery, InvalidRequest, NotAuthenticated, NotFound, ViewsBehind
from crew_journal.schemas.core.payload import ControlPayload
from crew_journal.schemas.core.ports import CommittedBatch
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.decode import decode
from crew_journal.schemas.entries.tables import ADMISSION_PROJECTION
from crew_journal.services.access.tokens import TOKENS_PROJECTION, TokenRegistry, mint_token, token_hash
from crew_journal.services.desk import parse
from crew_journal.services.journal.broker.config import AgentUser
from crew_journal.services.journal.intake.append import Appended


class Views:
    """A ``ViewReader`` that holds the rows of ``tokens`` and nothing else."""

    def __init__(self) -> None:
        self.generation = 0
        self.held: list[tuple[Any, ...]] = []
        self.seqs: dict[str, int] = {}
        self.listener: Callable[[CommittedBatch], None] = lambda _: None

    async def wait_for(self, seq: int, *_: object) -> int:
        return seq

    def view_seq(self, *projections: str) -> int:
        return min(self.seqs.get(name, 0) for name in projections)

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(self.held)

    def subscribe(self, listener: Callable[[Any], None]) -> Callable[[], None]:
        self.listener = listener
        return lambda: None

    def commit(self, seq: int, payload: ControlPayload) -> None:
        """As the host tells of a commit."""
        message = at(seq, control(payload, f"c{seq}"))
        event = decode(message.seq, message.subject, message.headers, message.data, message.published_ms)
        assert isinstance(event, EntryRecorded)
        self.listener(CommittedBatch(seq, seq, [event], frozenset({TOKENS_PROJECTION})))


class RevokedMeanwhile:
    """A ``Recorder`` in whose journal every token is revoked as soon as it is made."""

    def __init__(self, views: Views) -> None:
        self.views = views
        self.made = ""
        self.seq = 0

    async def record(self, _: str, payload: ControlPayload, **__: object) -> Appended:
        if isinstance(payload, TokenCreated):
            self.made = payload.token_id
        elif self.made:
            self.views.commit(self.seq, TokenRevoked(token_id=self.made))
        self.seq += 2
        return Appended(f"c{self.seq}", self.seq, duplicate=False)


class Users:
    """A ``NatsUsers`` that keeps what is wanted of it."""

    address = "nats://nowhere"

    def __init__(self) -> None:
        self.wanted: tuple[AgentUser, ...] = ()

    def want(self, users: tuple[AgentUser, ...]) -> None:
        self.wanted = users

    async def settled(self, _: str) -> None:
        pass


def test_a_token_that_a_catch_up_folded_counts_without_a_restart():
    views, token = Views(), mint_token()
    registry = TokenRegistry(views, None, mint_token())  # type: ignore[arg-type]  # only reads here
    registry.load()
    with pytest.raises(NotAuthenticated):
        registry.authenticate(token)
    views.held.append(("t_1", token_hash(token), "AGENT", "default", None, "ada", None, "", "", None))
    views.generation += 1
    assert registry.authenticate(token).agent_id == "ada"
    assert registry.counts("t_1")


def test_a_token_that_a_rebuild_no_longer_knows_does_not_count():
    views, token = Views(), mint_token()
    views.held.append(("t_1", token_hash(token), "AGENT", "default", None, "ada", None, "", "", None))
    registry = TokenRegistry(views, None, mint_token())  # type: ignore[arg-type]  # only reads here
    registry.load()
    assert registry.authenticate(token)
    views.held.clear()
    views.generation += 1
    assert not registry.counts("t_1")
    with pytest.raises(NotAuthenticated):
        registry.authenticate(token)


def test_a_second_token_with_the_id_of_another_is_not_believed():
    views, first, second = Views(), mint_token(), mint_token()
    registry = TokenRegistry(views, None, mint_token())  # type: ignore[arg-type]  # only reads here
    registry.load()
    for seq, plaintext in enumerate((first, second), 1):
        bound = {"role": Role.AGENT, "workspace_id": "w1", "agent_id": "ada"}
        views.commit(seq, TokenCreated(token_id="t_1", sha256=token_hash(plaintext), **bound))
    assert registry.authenticate(first).agent_id == "ada"
    with pytest.raises(NotAuthenticated):
        registry.authenticate(second)


def test_half_folded_tokens_are_not_believed_for_they_may_be_revoked_and_none_is_called_unknown():
    views, owner, token = Views(), mint_token(), mint_token()
    views.seqs = {ADMISSION_PROJECTION: 9, TOKENS_PROJECTION: 4}
    views.held.append(("t_1", token_hash(token), "AGENT", "default", None, "ada", None, "", "", None))
    registry = TokenRegistry(views, None, owner)  # type: ignore[arg-type]  # only reads here
    registry.load()
    with pytest.raises(ViewsBehind):
        registry.authenticate(token)
    assert registry.authenticate(owner).role is Role.OWNER
    views.seqs[TOKENS_PROJECTION] = 9
    assert registry.authenticate(token).agent_id == "ada", "once it has caught up"


def test_a_view_that_falls_behind_takes_nothing_back_from_what_is_known():
    views, token, revoked = Views(), mint_token(), mint_token()
    views.held.append(("t_1", token_hash(token), "AGENT", "default", None, "ada", None, "", "", None))
    registry = TokenRegistry(views, None, mint_token())  # type: ignore[arg-type]  # only reads here
    registry.load()
    views.seqs = {ADMISSION_PROJECTION: 9, TOKENS_PROJECTION: 4}
    views.held.append(("t_2", token_hash(revoked), "AGENT", "default", None, "eve", None, "", "", None))
    views.generation += 1
    assert registry.authenticate(token).agent_id == "ada"
    with pytest.raises(NotAuthenticated):
        registry.authenticate(revoked)


async def test_tokens_are_not_listed_while_some_are_missing():
    views = Views()
    views.seqs = {ADMISSION_PROJECTION: 9, TOKENS_PROJECTION: 4}
    registry = TokenRegistry(views, None, mint_token())  # type: ignore[arg-type]  # only reads here
    registry.load()
    with pytest.raises(ViewsBehind, match="4 of 9"):
        await registry.list(Principal(token_id="owner", role=Role.OWNER, workspace_id=None))


async def test_a_token_that_was_revoked_while_it_was_made_gets_no_nats_user():
    views, users = Views(), Users()
    registry = TokenRegistry(views, RevokedMeanwhile(views), mint_token(), nats=users)  # type: ignore[arg-type]  # fakes
    registry.load()
    owner = Principal(token_id="owner", role=Role.OWNER, workspace_id=None)
    with pytest.raises(NotFound, match="meanwhile"):
        await registry.create(owner, asked(role=Role.AGENT, workspace_id="w1", agent_id="ada", nats=True))
    assert users.wanted == ()


NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
OWNER = Principal(token_id="owner", role=Role.OWNER, workspace_id=None)


def asked(**fields: Any) -> TokenRequest:
    return TokenRequest.model_validate(fields)


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


class Records:
    """A ``Recorder`` that keeps what it records."""

    def __init__(self) -> None:
        self.payloads: list[ControlPayload] = []

    async def record(self, _: str, payload: ControlPayload, **__: object) -> Appended:
        self.payloads.append(payload)
        return Appended("c", len(self.payloads), duplicate=False)


def registry_with(clock: Callable[[], datetime], users: Users | None = None) -> tuple[TokenRegistry, Views, Records]:
    views, records = Views(), Records()
    registry = TokenRegistry(views, records, mint_token(), nats=users, clock=clock)  # type: ignore[arg-type]  # fakes
    registry.load()
    return registry, views, records


async def test_a_token_is_refused_from_its_expiry_on_saying_when_it_was_and_what_to_do():
    clock = Clock()
    registry, _, _ = registry_with(clock)
    ends = NOW + timedelta(days=30)
    made = await registry.create(OWNER, asked(role=Role.AGENT, workspace_id="w1", agent_id="ada", expires_at=ends))
    clock.now = NOW + timedelta(days=30, milliseconds=-1)
    assert registry.authenticate(made.plaintext).agent_id == "ada"
    assert registry.counts(made.info.token_id)
    clock.now = NOW + timedelta(days=30)
    with pytest.raises(NotAuthenticated, match="expired at 2026-12-21T09:30") as refused:
        registry.authenticate(made.plaintext)
    assert "token create" in refused.value.hint
    assert not registry.counts(made.info.token_id), "its live tails end"


async def test_grants_are_facts_that_every_way_to_learn_of_a_token_knows():
    registry, views, records = registry_with(Clock())
    grants = {
        "may_publish": ("keeper.*", "approval.denied"),
        "speaks_for": ("keeper", "user:ann"),
        "expires_at": NOW + timedelta(hours=1),
    }
    made = await registry.create(OWNER, asked(role=Role.AGENT, workspace_id="w1", **grants))
    [fact] = records.payloads
    bearer = registry.authenticate(made.plaintext)
    given = (grants["may_publish"], grants["speaks_for"])
    assert (bearer.agent_id, bearer.may_publish, bearer.speaks_for) == ("keeper", *given)
    assert (made.info.may_publish, made.info.speaks_for) == given
    assert made.info.expires_ms == bearer.expires_ms
    elsewhere, its_views, _ = registry_with(Clock())
    its_views.commit(1, fact)
    assert elsewhere.authenticate(made.plaintext) == bearer
    views.held.append(
        (bearer.token_id, token_hash(made.plaintext), "AGENT", "w1", None, "keeper", None, "keeper.* approval.denied",
         "keeper\nuser:ann", bearer.expires_ms)
    )  # fmt: skip
    views.generation += 1
    assert registry.authenticate(made.plaintext) == bearer


@pytest.mark.parametrize(
    ("role", "grants", "field"),
    [
        (Role.AGENT, {"may_publish": ("skill.*",)}, "may_publish"),
        (Role.AGENT, {"may_publish": ("keeper.*", "memory.consolidated")}, "may_publish"),
        (Role.ADMIN, {"may_publish": ("keeper.*",)}, "may_publish"),
        (Role.OWNER, {"speaks_for": ("keeper",)}, "speaks_for"),
        (Role.AGENT, {"expires_at": NOW}, "expires_at"),
    ],
)
async def test_a_grant_that_can_never_count_is_refused_naming_its_field(role: Role, grants: dict[str, Any], field: str):
    registry, _, records = registry_with(Clock())
    agent = "ada" if role is Role.AGENT else None
    with pytest.raises(InvalidQuery) as refused:
        await registry.create(OWNER, asked(role=role, workspace_id="w1", agent_id=agent, **grants))
    assert refused.value.field == field
    assert refused.value.hint
    assert records.payloads == []


@pytest.mark.parametrize(
    ("grants", "field"),
    [
        ({"may_publish": ["*"]}, "may_publish.0"),
        ({"may_publish": ["Keeper.*"]}, "may_publish.0"),
        ({"speaks_for": ["robot"]}, "speaks_for.0"),
    ],
)
def test_a_grant_that_is_not_well_formed_is_refused_naming_its_place(grants: dict[str, Any], field: str):
    with pytest.raises(InvalidRequest) as refused:
        parse(CREATE_TOKEN, {"role": "AGENT", "agent_id": "ada", **grants})
    assert [problem.field for problem in refused.value.problems] == [field]


async def test_the_nats_user_of_a_token_ends_with_it():
    users = Users()
    registry, _, _ = registry_with(lambda: datetime.now(UTC), users)
    soon = datetime.now(UTC) + timedelta(milliseconds=500)
    kept = await registry.create(OWNER, asked(role=Role.AGENT, workspace_id="w1", agent_id="bob", nats=True))
    made = await registry.create(
        OWNER, asked(role=Role.AGENT, workspace_id="w1", agent_id="ada", nats=True, expires_at=soon)
    )
    assert {user.name for user in users.wanted} == {kept.info.token_id, made.info.token_id}
    await eventually(lambda: {user.name for user in users.wanted} == {kept.info.token_id}, "only the other counts")
    registry.close()
