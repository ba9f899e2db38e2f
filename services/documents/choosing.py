"""Chooses the document store of each workspace: by settings for all, by a TOML file for individual workspaces.

Invariant: the choice is made when the node starts; an invalid choice stops the start. Health is answered within
the deadline whatever the backend does.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...schemas.core.errors import InvalidQuery, NotByProvider
from ...schemas.core.ids import is_workspace
from ...schemas.core.limits import DEFAULT_WORKSPACE
from ...schemas.core.timestamps import format_ts
from ...schemas.documents.provider import ProviderFactory
from ...schemas.settings import Settings
from .adapters import OutsideStore, ProvidedStore, health_of, owner_of_workspace
from .drafts import DocumentStore
from .journal_store import JournalStore
from .providers import DiskStore

if TYPE_CHECKING:
    import httpx

JOURNAL, DISK, HTTP = "journal", "disk", "http"
_FILE: Final = "CREW_JOURNAL_MEMORY_FILE"
_FACTORY: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")
_STRICT: Final = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Choice(BaseModel):
    """A provider and its settings."""

    model_config = _STRICT
    provider: str = JOURNAL
    url: str | None = None
    token: str | None = Field(default=None, repr=False)
    root: Path | None = None

    def checked(self, named: Callable[[str], str]) -> Choice:
        """The choice, if it has all fields that its provider needs.

        Args:
            named: Returns a field's name where the choice was made: a variable, or a key of the file.

        Raises:
            InvalidQuery: Names the invalid field.
        """
        for name in {DISK: ("root",), HTTP: ("url", "token")}.get(self.provider, ()):
            if not getattr(self, name):
                raise InvalidQuery(
                    f"{named(name)} is missing", hint=f"provider {self.provider} needs it", field=named(name)
                )
        if self.provider not in (JOURNAL, DISK, HTTP) and not _FACTORY.match(self.provider):
            raise InvalidQuery(
                f"{named('provider')} {self.provider[:64]!r} is not a memory provider",
                hint="use journal, disk, http or module:factory",
                field=named("provider"),
            )
        return self


class _Workspace(BaseModel):
    model_config = _STRICT
    memory: Choice


class _ChoicesFile(BaseModel):
    model_config = _STRICT
    memory: Choice | None = None
    workspace: dict[str, _Workspace] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProviderChoices:
    """The provider of each workspace that the file names, and the provider of all other workspaces."""

    default: Choice
    workspaces: Mapping[str, Choice]

    def of(self, workspace_id: str) -> Choice:
        """The choice of a workspace."""
        return self.workspaces.get(workspace_id, self.default)


def read_choices(settings: Settings) -> ProviderChoices:
    """Read the choices from settings and file; the file's ``[memory]`` replaces the settings. Blocking.

    Raises:
        InvalidQuery: If the file cannot be read, or a choice is not complete.
    """
    default = Choice(
        provider=settings.memory_provider,
        url=settings.memory_provider_url,
        token=settings.memory_provider_token,
        root=settings.memory_provider_root,
    )
    named: dict[str, Choice] = {}
    if settings.memory_file is not None:
        read = _read(settings.memory_file)
        named = {
            name: workspace.memory.checked(f"workspace.{name}.memory.{{}}".format)
            for name, workspace in read.workspace.items()
        }
        if read.memory is not None:
            return ProviderChoices(read.memory.checked("memory.{}".format), named)
    return ProviderChoices(default.checked(_variable), named)


def _variable(field: str) -> str:
    return "CREW_JOURNAL_MEMORY_PROVIDER" + ("" if field == "provider" else f"_{field.upper()}")


def _read(path: Path) -> _ChoicesFile:
    try:
        file = _ChoicesFile.model_validate(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise InvalidQuery(f"{path} cannot be read: {error.strerror}", hint=f"correct {_FILE}", field=_FILE) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidQuery(f"{path}: {where}: {first['msg']}", hint="see docs/providers.md", field=where) from None
    except ValueError as error:  # not TOML or not UTF-8
        raise InvalidQuery(f"{path} is not TOML: {error}", hint="see docs/providers.md", field=_FILE) from None
    for name in file.workspace:
        if not is_workspace(name):
            raise InvalidQuery(f"{path}: {name[:64]!r} is not a workspace", hint="use its id", field="workspace")
    return file


def factory_of(named: str) -> ProviderFactory:
    """The callable that ``module:factory`` names.

    Raises:
        InvalidQuery: If it cannot be imported or called.
    """
    module, _, name = named.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        hint = "name an importable module and a callable in it: module:factory"
        raise InvalidQuery(f"provider {named[:128]!r} cannot be imported: {error}", hint=hint) from error
    if not callable(factory):
        raise InvalidQuery(f"provider {named[:128]!r} cannot be called", hint="name a callable (ProviderScope)")
    return cast("ProviderFactory", factory)


class DocumentStores:
    """The document stores of a node.

    Args:
        choices: The provider of each workspace.
        journal: The store in the journal, whose checks apply to writes to all stores.
        clock: The time, UTC.
    """

    def __init__(
        self,
        choices: ProviderChoices,
        journal: JournalStore,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._choices = choices
        self._journal = journal
        self._clock = clock
        self._clients: list[httpx.AsyncClient] = []
        self._default = self._store(choices.default)
        self._stores = {name: self._store(choice) for name, choice in choices.workspaces.items()}

    def of(self, workspace_id: str) -> DocumentStore:
        """The store of a workspace."""
        return self._stores.get(workspace_id, self._default)

    def name_of(self, workspace_id: str) -> str:
        """How the store of a workspace is configured: ``journal``, ``disk``, ``http`` or ``module:factory``."""
        return self._choices.of(workspace_id).provider

    def is_journal(self, workspace_id: str) -> bool:
        """Whether a workspace's documents are in the journal."""
        return self.name_of(workspace_id) == JOURNAL

    def require_journal(self, workspace_id: str, what: str) -> None:
        """Refuse a request that only the journal can answer; ``what`` describes it.

        Raises:
            NotByProvider: If the documents of the workspace are not in the journal.
        """
        if not self.is_journal(workspace_id):
            raise self._refusal(workspace_id, what)

    async def health(self, workspace_id: str | None) -> dict[str, Any]:
        """The health of a workspace's store for ``status``; if None, of all configured stores."""
        if workspace_id is not None:
            return await self._health(workspace_id)
        names = [DEFAULT_WORKSPACE, *self._choices.workspaces]
        shown, *named = await asyncio.gather(*map(self._health, names))
        return {**shown, "workspaces": dict(zip(names[1:], named, strict=True))} if named else shown

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.aclose()

    async def _health(self, workspace_id: str) -> dict[str, Any]:
        began = monotonic()
        store, owner = self.of(workspace_id), owner_of_workspace(workspace_id)
        health = await health_of(lambda: store.trouble(owner), self._clock)
        return {
            "provider": self.name_of(workspace_id),
            "ok": health.ok,
            "message": health.message,
            "checked_at": format_ts(health.checked_at),
            "milliseconds": round((monotonic() - began) * 1_000),
        }

    def _refusal(self, workspace_id: str, what: str) -> NotByProvider:
        return NotByProvider(
            f"{what} needs memory documents in the journal; workspace {workspace_id} has the memory provider "
            f"{self.name_of(workspace_id)}",
            hint="choose provider journal for this workspace (docs/providers.md)",
        )

    def _store(self, choice: Choice) -> DocumentStore:
        if choice.provider == JOURNAL:
            return self._journal
        if choice.provider == DISK:
            store: DocumentStore = DiskStore(choice.root)
        elif choice.provider == HTTP:
            from .providers import HttpStore, http_client  # the HTTP client is imported where it is used

            client = http_client(choice.url or "", choice.token or "")
            self._clients.append(client)
            store = HttpStore(client)
        else:
            store = ProvidedStore(factory_of(choice.provider), self._refusal)
        return OutsideStore(store, self._refusal, self._journal)
