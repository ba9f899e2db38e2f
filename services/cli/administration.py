"""``workspace settings`` and ``token create``: what an OWNER or ADMIN sets up.

Invariant: a token is printed once, when it is made; afterwards only its id and binding can be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import click

from ...schemas.entry import ActorType
from ...schemas.grants import USER
from ...schemas.operations.tokens import CREATE_TOKEN
from ...schemas.operations.workspaces import CONFIGURE_WORKSPACE
from ...schemas.timestamps import parse_ts
from ..times import span_of
from .commands import CommandGroup, Option
from .completing import complete_role
from .connection import client
from .options import Json, Where
from .output import print_pairs, safe, say, show
from .printers import minute, print_fields
from .request_options import Fields

workspaces = CommandGroup(
    help="""Workspaces and their settings, for OWNER and ADMIN.

There is no command that makes a workspace: it begins with its first token (`token create --workspace NAME`) or entry.
"""
)
tokens = CommandGroup(help="Tokens: credentials of agents and people.")


@workspaces.command("settings")
def workspace_settings(
    fields: Annotated[dict[str, Any], Fields(CONFIGURE_WORKSPACE)],
    where: Where,
    json_output: Json = False,
) -> None:
    """Show the settings of a workspace, or change those that are given."""
    scope = {"workspace_id": fields.pop("workspace_id", None)}
    with client(where) as journal:
        answer = journal.configure_workspace(**fields, **scope) if fields else journal.workspace_settings(**scope)
    show(answer, json_output, print_fields)


@tokens.command("create")
def create_token(
    role: Annotated[str, Option("--role", help="OWNER, ADMIN, LEAD or AGENT.", autocompletion=complete_role)] = "AGENT",
    may_publish: Annotated[
        str, Option("--may-publish", help="For LEAD and AGENT: further types, like 'keeper.*,approval.*'.")
    ] = "",
    speaks_for: Annotated[
        str,
        Option(
            "--speaks-for",
            help="By commas: persons whose own words it submits, like maria; for LEAD and AGENT also actors (keeper:gate).",
        ),
    ] = "",
    expires: Annotated[
        str | None, Option("--expires", help="When it expires: after 30m, 12h, 30d or 8w, or at an RFC 3339 time.")
    ] = None,
    *,
    fields: Annotated[
        dict[str, Any], Fields(CREATE_TOKEN, without=("role", "may_publish", "speaks_for", "expires_at"))
    ],
    where: Where,
    json_output: Json = False,
) -> None:
    """Create a token and print it on stdout. It cannot be shown again."""
    speakers = tuple(map(speaker_of, _names(speaks_for)))
    fields |= {"role": role.upper(), "may_publish": _names(may_publish), "speaks_for": speakers}
    if expires is not None:
        fields["expires_at"] = expiry_of(expires, datetime.now(UTC))
    with client(where, create=True) as journal:
        made = journal.create_token(**fields)
    show(made, json_output, _print_token)


def _print_token(made: Mapping[str, Any]) -> None:
    if access := made["nats_access"]:
        print_pairs({"token": made["token"], **access}.items())
    else:
        print(safe(made["token"]))
    bound = made["workspace_id"] or "all workspaces"
    if made["expires_ms"]:
        bound += f", expires {minute(made['expires_ms'])}"
    say(f"token {safe(made['token_id'])} ({safe(made['role'])}, {safe(bound)}) cannot be shown again")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def speaker_of(name: str) -> str:
    """An actor as a grant names it; a name that is neither an actor type nor has one before a colon is a person's."""
    return name if name.partition(":")[0] in set(ActorType) else f"{USER}:{name}"


def expiry_of(text: str, now: datetime) -> datetime:
    """The time that ``30d``, ``12h`` or an RFC 3339 time names.

    Raises:
        click.BadParameter: If it is neither.
    """
    try:
        span = span_of(text)
        return parse_ts(text) if span is None else now + span
    except (ValueError, OverflowError):
        raise click.BadParameter(
            "write it like 30m, 12h, 30d, 8w or 2026-12-24T00:00:00Z", param_hint="--expires"
        ) from None
