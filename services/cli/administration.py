"""Commands that set up a journal: workspace settings, tokens, agents, crews, and trust in the settings of a folder.

Invariant: a token is printed once, when it is made; afterwards only its id and binding can be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import click

from ...schemas.access.operations import CONFIGURE_WORKSPACE, CREATE_TOKEN, INVITE_PERSON, REGISTER_CREW, UPDATE_AGENT
from ...schemas.core.entry import ActorType
from ...schemas.core.errors import EntryConflict, NotFound
from ...schemas.core.grants import USER
from ...schemas.core.ids import slug_of
from ...schemas.core.timestamps import parse_ts
from ..client.project import Trusted, settings_text
from ..client.project import trust as trust_place
from ..client.project import untrust as untrust_place
from ..printable import safe, span_of
from .commands import Argument, CommandGroup, Option
from .connection import client, sync_client, target
from .options import AsOf, Fields, Json, Where, complete_role, past_or_now
from .output import plain, print_pairs, say, show
from .printers import minute, print_fields, print_registered

workspaces = CommandGroup(
    help="""Workspaces and their settings, for OWNER and ADMIN.

There is no command that makes a workspace: it begins with its first token (`token create --workspace NAME`) or entry.
"""
)
tokens = CommandGroup(help="Tokens: credentials of agents and people.")
accounts = CommandGroup(help="People who sign in to the pages by name, and their sessions.")


@workspaces.command("settings")
def workspace_settings(
    fields: Annotated[dict[str, Any], Fields(CONFIGURE_WORKSPACE)],
    as_of: AsOf = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Show the settings of a workspace, or change those that are given."""
    scope = {"workspace_id": fields.pop("workspace_id", None)}
    if fields and as_of is not None:
        raise click.BadParameter("shows settings, and goes with no option that changes one", param_hint="--as-of")
    with client(where) as journal:
        if fields:
            answer = journal.configure_workspace(**fields, **scope)
        else:
            answer = journal.workspace_settings(as_of=past_or_now(as_of), **scope)
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
    """The actor in a grant; a name without an actor type (alone or before a colon) is a person's name."""
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


def invite(
    person: Annotated[str, Argument(metavar="NAME", help="The name with which the person signs in.")],
    role: Annotated[str, Option("--role", help="OWNER, ADMIN, LEAD or AGENT.", autocompletion=complete_role)] = "ADMIN",
    *,
    fields: Annotated[dict[str, Any], Fields(INVITE_PERSON, without=("person", "role"))],
    where: Where,
    json_output: Json = False,
) -> None:
    """Print a link with which a person sets a password for the pages, once; for a known person it is a new link."""
    with target(where, create=True, stay=True) as there, sync_client(there) as journal:
        made = journal.invite_person(**fields | {"person": person, "role": role.upper()})
    show({**plain(made), "link": f"{there.url}{made.path}"}, json_output, _print_invited)


def _print_invited(made: Mapping[str, Any]) -> None:
    print(safe(made["link"]))
    bound = made["workspace_id"] or "all workspaces"
    say(
        f"for {safe(made['person'])} ({safe(made['role'])}, {safe(bound)}): works once, until"
        f" {minute(made['expires_ms'])}, and cannot be shown again"
    )


# ``agent create`` and ``crew create``, which refuse an id that is already registered.


agents = CommandGroup(help="Agents and their settings.")
crews = CommandGroup(help="Crews and their settings.")
NewId = Annotated[str | None, Argument(metavar="[ID]", help="The id; without it, one is made of --name.")]


@agents.command("create")
def create_agent(
    agent_id: NewId,
    fields: Annotated[dict[str, Any], Fields(UPDATE_AGENT, without=("agent_id",))],
    where: Where,
    json_output: Json = False,
) -> None:
    """Register an agent that is not registered yet."""
    new, workspace = _new_id(agent_id, fields), fields.get("workspace_id")
    with client(where) as journal:
        _refuse_known("agent", new, lambda: journal.agent(new, workspace_id=workspace))
        show(journal.register_agent(new, **fields), json_output, print_registered)


@crews.command("create")
def create_crew(
    crew_id: NewId,
    fields: Annotated[dict[str, Any], Fields(REGISTER_CREW, without=("crew_id",))],
    where: Where,
    json_output: Json = False,
) -> None:
    """Register a crew that is not registered yet."""
    new, workspace = _new_id(crew_id, fields), fields.get("workspace_id")
    with client(where) as journal:
        _refuse_known("crew", new, lambda: journal.crew(new, workspace_id=workspace))
        show(journal.register_crew(new, **fields), json_output, print_registered)


def _new_id(given: str | None, asked: dict[str, Any]) -> str:
    if new_id := given or slug_of(asked.get("name", "")):
        return new_id
    raise click.BadParameter("give an id, or a --name with letters a-z or digits", param_hint="ID")


def _refuse_known(kind: str, new: str, look: Callable[[], object]) -> None:
    try:
        look()
    except NotFound:
        return
    raise EntryConflict(f"the {kind} {new} is registered already", hint=f"use `crew-journal {kind} update`")


# ``trust`` and ``untrust``: a person's decision about a journal or settings that are found in a folder.


Place = Annotated[
    Path,
    Argument(metavar="[PATH]", help="The folder, or the place in it; the current folder if left out.", exists=True),
]


def trust(path: Place = Path(), json_output: Json = False) -> None:
    """Use the journal (.crew-journal) or the settings (.crew-journal.json) found in a folder, as they are now.

    A journal that `up` makes here is trusted already. If the settings or the journal's owner's token change, they have to be
    trusted again. If a folder has both and neither is trusted, name one.
    """
    _show("trusted", trust_place(path), json_output)


def untrust(path: Place = Path(), json_output: Json = False) -> None:
    """Do not use the journal that is found in a folder, or ignore the settings there. If a folder has both, name one."""
    _show("refused", untrust_place(path), json_output)


def _show(verb: str, chosen: Trusted, json_output: bool) -> None:
    content = settings_text(chosen.path) if chosen.kind == "settings" else ""

    def printed(answer: dict[str, Any]) -> None:
        print(f"{verb}: the {answer['kind']} in {safe(answer['path'])}{': ' if content else ''}{safe(content)}")

    answer = {"state": verb, "kind": chosen.kind, "path": str(chosen.path), "content": content}
    show(answer, json_output, printed)
