"""``token create|list|revoke``: who may ask, and publish on NATS, bound to workspace, role, crew and agent.

Invariant: a token is shown once, when it is made; afterwards only its id and binding can be seen.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, cast

import typer

from .groups import grouped
from .options import Json, Where
from .printers import minute

_SPAN: Final = re.compile(r"([1-9][0-9]{0,4})([mhdw])\Z")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

app = typer.Typer(help="Tokens: credentials for a role in a workspace, crew or agent.", no_args_is_help=True)


@app.command("create")
@grouped
def create(
    role: Annotated[str, typer.Option("--role", help="OWNER, ADMIN, LEAD or AGENT.")] = "AGENT",
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", "-w", help="Workspace of the token (default: `default`)."),
    ] = None,
    every_workspace: Annotated[
        bool, typer.Option("--all-workspaces", help="For an OWNER: valid in every workspace; each request names one.")
    ] = False,
    agent: Annotated[
        str | None, typer.Option("--agent", help="Agent of the token; required for LEAD and AGENT.")
    ] = None,
    crew: Annotated[str | None, typer.Option("--crew", help="Crew of the token; required for LEAD.")] = None,
    label: Annotated[str, typer.Option("--label", help="What it is for.")] = "",
    nats: Annotated[
        bool,
        typer.Option("--nats", help="For LEAD and AGENT: a NATS password, too; prints address, user and subject."),
    ] = False,
    may_publish: Annotated[
        str | None,
        typer.Option("--may-publish", help="For LEAD and AGENT: further types, like 'keeper.*,approval.*'."),
    ] = None,
    speaks_for: Annotated[
        str | None,
        typer.Option("--speaks-for", help="For LEAD and AGENT: further actors, like keeper or keeper:gate, by commas."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", help="When it expires: after 30m, 12h, 30d or 8w, or at an RFC 3339 time."),
    ] = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Create a token and print it on stdout. It cannot be shown again."""
    from .connection import client
    from .output import emit, plain, print_pairs, safe, say

    if every_workspace and workspace is not None:
        raise typer.BadParameter("is for all workspaces or for one, not both", param_hint="--all-workspaces")
    expires_at = None if expires is None else expiry_of(expires, datetime.now(UTC))
    with client(where, create=True) as journal:
        made = plain(
            journal.create_token(
                role=cast(Any, role.upper()),  # the service checks it
                workspace_id=workspace,
                all_workspaces=every_workspace,
                agent_id=agent,
                crew_id=crew,
                label=label,
                nats=nats,
                may_publish=_names(may_publish),
                speaks_for=_names(speaks_for),
                expires_at=expires_at,
            )
        )
    if json_output:
        emit(made)
        return
    if access := made["nats_access"]:
        print_pairs({"token": made["token"], **access}.items())
    else:
        print(safe(made["token"]))
    bound = made["workspace_id"] or "all workspaces"
    if made["expires_ms"]:
        bound += f", expires {minute(made['expires_ms'])}"
    say(f"token {safe(made['token_id'])} ({safe(made['role'])}, {safe(bound)}) cannot be shown again")


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def expiry_of(text: str, now: datetime) -> datetime:
    """The time that ``30d``, ``12h`` or an RFC 3339 time names.

    Raises:
        typer.BadParameter: If it names none.
    """
    from ...schemas.timestamps import parse_ts

    try:
        if (span := _SPAN.match(text)) is not None:
            return now + timedelta(**{_UNITS[span[2]]: int(span[1])})
        return parse_ts(text)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            "write it like 30m, 12h, 30d, 8w or 2026-12-24T00:00:00Z", param_hint="--expires"
        ) from None
