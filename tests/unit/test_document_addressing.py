"""Which document a request is about, by token and tier."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from crew_journal.schemas.core.errors import (
    CrewJournalError,
    InvalidRequest,
    InvalidTier,
    MissingKey,
    NotAllowed,
    Unavailable,
)
from crew_journal.schemas.core.principal import Principal, Role
from crew_journal.schemas.documents.operations import ReadDocumentRequest
from crew_journal.schemas.documents.rules import TIERS
from crew_journal.services.desk import Caller
from crew_journal.services.documents.addressing import DocumentAddress, address_of, check_may_write, rule_of

TODAY = date(2026, 5, 14)


def caller(role: Role, agent: str | None = None, crew: str | None = None) -> Caller:
    return Caller.of(Principal(token_id="t", role=role, workspace_id="acme", agent_id=agent, crew_id=crew))


ADA = caller(Role.AGENT, "ada", "core")
LONER = caller(Role.AGENT, "core")
LENA = caller(Role.LEAD, "lena", "core")
BOSS = caller(Role.ADMIN)


def address(who: Caller, tier: str, **asked: Any) -> DocumentAddress:
    request = ReadDocumentRequest(tier=tier, **asked)
    return address_of(who, request, request.tier, request.key, TODAY)


@pytest.mark.parametrize(
    ("who", "tier", "asked", "owner", "label"),
    [
        (ADA, "AGENT", {}, "a-ada", "AGENT.md"),
        (ADA, "AGENT", {"agent_id": "ada", "key": ""}, "a-ada", "AGENT.md"),
        (ADA, "CREW", {}, "c-core", "CREW.md"),
        (ADA, "WORKSPACE", {}, "w", "WORKSPACE.md"),
        (ADA, "daily", {}, "a-ada", "daily/2026-05-14.md"),
        (ADA, "daily", {"key": "2026-05-13", "scope": "crew"}, "c-core", "daily/2026-05-13.md"),
        (ADA, "daily", {"crew_id": "core"}, "c-core", "daily/2026-05-14.md"),
        (ADA, "pins", {}, "a-ada", "pins.md"),
        (ADA, "pins", {"scope": "workspace"}, "w", "pins.md"),
        (LONER, "daily", {}, "a-core", "daily/2026-05-14.md"),
        (LENA, "topics", {"key": "deploys"}, "c-core", "topics/deploys.md"),
        (BOSS, "AGENT", {"agent_id": "core"}, "a-core", "AGENT.md"),
        (BOSS, "CREW", {"crew_id": "core"}, "c-core", "CREW.md"),
        (BOSS, "pins", {}, "w", "pins.md"),
        (BOSS, "pins", {"agent_id": "ada"}, "a-ada", "pins.md"),
        (BOSS, "pins", {"crew_id": "edge"}, "c-edge", "pins.md"),
        (BOSS, "peers", {"agent_id": "ada", "key": "0af9"}, "a-ada", "peers/0af9.md"),
    ],
)
def test_token_tier_and_request_name_one_document(
    who: Caller, tier: str, asked: dict[str, Any], owner: str, label: str
) -> None:
    found = address(who, tier, **asked)
    assert (found.owner, found.label, found.workspace_id) == (owner, label, "acme")


@pytest.mark.parametrize(
    ("who", "tier", "asked", "error"),
    [
        (ADA, "Agent", {}, InvalidTier),
        (ADA, "peers", {}, MissingKey),
        (ADA, "topics", {"key": ""}, MissingKey),
        (ADA, "topics", {"key": "a/b"}, MissingKey),
        (ADA, "topics", {"key": ".."}, MissingKey),
        (ADA, "peers", {"key": "x\x00"}, MissingKey),
        (ADA, "daily", {"key": "2026-13-01"}, MissingKey),
        (ADA, "CREW", {"key": "x"}, MissingKey),
        (ADA, "AGENT", {"agent_id": "bruno"}, NotAllowed),
        (ADA, "CREW", {"crew_id": "edge"}, NotAllowed),
        (LENA, "AGENT", {"agent_id": "ada"}, NotAllowed),
        (LONER, "CREW", {}, Unavailable),
        (LONER, "daily", {"scope": "crew"}, Unavailable),
        (ADA, "CREW", {"scope": "agent"}, InvalidRequest),
        (BOSS, "AGENT", {}, InvalidRequest),
        (BOSS, "topics", {"key": "deploys"}, InvalidRequest),
    ],
)
def test_a_request_that_names_no_document_of_the_caller_is_refused(
    who: Caller, tier: str, asked: dict[str, Any], error: type[CrewJournalError]
) -> None:
    with pytest.raises(error):
        address(who, tier, **asked)


def may_write(who: Caller, tier: str, **asked: Any) -> bool:
    try:
        check_may_write(who, address(who, tier, **asked))
    except NotAllowed:
        return False
    return True


def test_who_writes_a_tier_depends_on_tier_scope_and_role() -> None:
    of_agent = {tier for tier in TIERS if TIERS[tier].writable and may_write(ADA, tier, **keyed(tier))}
    of_lead = {tier for tier in TIERS if TIERS[tier].writable and may_write(LENA, tier, **keyed(tier))}
    assert of_agent == {"AGENT", "daily", "peers", "files", "procedures"}
    assert of_lead == of_agent | {"CREW", "topics"}
    assert not may_write(ADA, "daily", scope="crew")
    assert may_write(LENA, "daily", scope="crew")
    for scope in ("agent", "crew", "workspace"):
        assert not may_write(LENA, "pins", scope=scope)
        assert may_write(BOSS, "pins", scope=scope, agent_id="ada", crew_id="core")


def test_a_rendering_cannot_be_written() -> None:
    for who in (ADA, LENA):
        with pytest.raises(InvalidTier):
            check_may_write(who, address(who, "lessons"))
        with pytest.raises(InvalidTier):
            check_may_write(who, address(who, "users", key="k"))
    with pytest.raises(InvalidTier):
        check_may_write(BOSS, address(BOSS, "lessons", crew_id="core"))


def test_documents_of_an_agent_and_a_crew_of_one_name_have_different_rows() -> None:
    assert address(BOSS, "daily", agent_id="core").row_key != address(BOSS, "daily", crew_id="core").row_key


def keyed(tier: str) -> dict[str, str]:
    return {"key": "k"} if tier in ("peers", "topics", "files", "users", "procedures") else {}


def test_an_unknown_tier_is_refused_with_those_that_can_be_written_apart_from_those_that_are_only_read() -> None:
    with pytest.raises(InvalidTier, match="no tier 'lesson'") as refused:
        rule_of("lesson")
    assert refused.value.hint == (
        "use one of AGENT, CREW, PERSONA, WORKSPACE, pins, daily, peers, topics, procedures, files, "
        "or to read lessons and users; case counts"
    )
