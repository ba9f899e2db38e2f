"""``memory block``: of a running service, or of a directory without one.

Invariant: with ``--path`` nothing but the directory is read, by the rules of a mirror; one function makes both blocks.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import click

from ...schemas.operations.memory_block import MEMORY_BLOCK
from ...schemas.rules.tiers import Scope, tier_of_label
from .commands import Option
from .connection import client
from .documents import print_memory_block
from .options import Json, Where
from .output import say, show
from .request_options import Fields

if TYPE_CHECKING:
    from ..memory.documents.owned import OwnedDocuments

_OF_THE_SERVICE: Final = ("query", "remembered_tokens", "as_of", "min_seq")


def block(
    fields: Annotated[dict[str, Any], Fields(MEMORY_BLOCK)],
    path: Annotated[
        Path | None,
        Option("--path", "-p", file_okay=False, help="Directory of a mirror, with .memory; no service is asked."),
    ] = None,
    crew_dir: Annotated[
        Path | None, Option("--crew-dir", file_okay=False, help="With --path, the crew's. [default: PATH/crew]")
    ] = None,
    lead: Annotated[bool, Option("--lead", help="With --path, that the agent is the lead of its crew.")] = False,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Build the memory block for an agent's prompt: of the service, or with --path of a directory.

    Text that the injection scanners block is replaced by a notice. A directory has no memory of the workspace and no
    registration: the budget is --max-chars or 15,000 characters, and topics are not ranked.
    """
    answer: Any
    if path is None:
        with client(where) as journal:
            answer = journal.memory_block(**fields)
    else:
        for name in _OF_THE_SERVICE:
            if name in fields:
                raise click.BadParameter("a directory cannot answer this", param_hint="--" + name.replace("_", "-"))
        answer = block_of_directory(path, crew_dir or path / "crew", fields, lead=lead)
    show(answer, json_output, print_memory_block)


def block_of_directory(path: Path, crew_dir: Path, fields: dict[str, Any], *, lead: bool) -> dict[str, Any]:
    """The block, with the fields of the service's answer.

    Raises:
        click.BadParameter: If the agent is missing.
    """
    from ...schemas.limits import DEFAULT_WORKSPACE
    from ...schemas.principal import Principal, Role
    from ...schemas.rules.memory_block import BUDGET_DEFAULT, build_memory_block
    from ..desk import Caller
    from ..memory.block_input import BlockState, block_input
    from ..memory.documents.owned import OwnedDocuments
    from ..memory.profiles import Opener

    agent, crew = fields.get("agent_id"), fields.get("crew_id")
    if agent is None:
        raise click.BadParameter("name the agent of the directory", param_hint="--agent")
    if lead and crew is None:
        raise click.BadParameter("name the crew that it leads", param_hint="--crew")
    workspace = fields.get("workspace_id") or DEFAULT_WORKSPACE
    role = Role.LEAD if lead else Role.AGENT
    principal = Principal(token_id="directory", role=role, workspace_id=workspace, agent_id=agent, crew_id=crew)
    own = _documents(path, Scope.AGENT)
    of_crew = OwnedDocuments() if crew is None else _documents(crew_dir, Scope.CREW)
    opener = fields.get("opener")
    opened = None if opener is None else Opener(opener, slug=opener)  # models and cards are not in directories
    state = BlockState(datetime.now(UTC).date(), None, frozenset(), own, of_crew, OwnedDocuments(), opener=opened)
    given = block_input(Caller.of(principal), state, agent, crew)
    block = build_memory_block(given, fields.get("max_chars", BUDGET_DEFAULT))
    sections = [
        {name: getattr(section, name) for name in ("block", "name", "label", "chars", "cut", "blocked")}
        for section in block.sections
    ]
    return {"text": block.text, "memory_enabled": True, "sections": sections, "usage": block.usage}


def _documents(base: Path, scope: Scope) -> OwnedDocuments:
    """The documents of a folder; what a mirror refuses is left out and named."""
    from ...schemas.rules.documents import finding_in
    from ..memory.documents.owned import DocumentText, OwnedDocuments
    from .mirror.folder import Folder, UnreadableFile

    folder, owned = Folder(base, scope), OwnedDocuments()
    if not folder.root.is_dir() or folder.root.is_symlink():
        return owned
    for label in sorted(folder.scan().files):
        tier, key = tier_of_label(label) or ("", None)
        try:
            text = folder.read(label)[1].decode()
        except UnreadableFile as error:
            say(f"{folder.path_of(label)}: {error}")
        else:
            owned.rows[tier, key] = DocumentText(text, finding_in(text), 0)
    return owned
