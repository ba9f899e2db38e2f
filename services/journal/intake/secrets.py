"""Keeps credentials out of the journal: every text is checked here before it is stored.

Invariant: entries of clients, decisions of the service and texts of documents are searched before they are published,
whatever their source (HTTP, NATS, tools, imports, pages). The setting of the workspace (``memory.config_updated``:
scrubber), else of the node, decides what happens to a credential. The content hash of an entry covers the submitted
content, so that a retry has the same hash. Ids and other names of limited alphabets are not changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import orjson

from ....schemas.core.entry import MAX_ENTRY_BYTES, MAX_SUMMARY
from ....schemas.core.errors import EntryTooLarge, FieldProblem, InvalidEntry, InvalidRequest
from ....schemas.core.ports import ViewReader
from ....schemas.core.recorded_settings import ScrubberMode
from ....schemas.documents.tables import MEMORY_CONFIG
from ....schemas.text.secrets import NOTICE, find_secrets, kinds_of, may_hold_secrets, without
from ...kept import KeptValues, in_thread
from .submission import Accepted

DEFAULT_MODE: Final[ScrubberMode] = "redact"
MODE_OF_SETTING: Final[Mapping[str, ScrubberMode]] = {"redact": "redact", "refuse": "block", "keep": "off"}
"""``Settings.secrets`` → mode of a workspace without its own setting."""
HINT: Final = "write where the secret is kept instead of the secret"
_TEXT_FIELDS: Final = ("summary", "payload", "refs")
_MODE: Final = f"SELECT scrubber FROM {MEMORY_CONFIG} WHERE workspace_id = ?"


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """A text after the treatment of credentials.

    Attributes:
        text: The text.
        kinds: The kinds of credentials that were found in it, such as ``aws key``.
        mode: The mode: how credentials are treated.
    """

    text: str
    kinds: tuple[str, ...]
    mode: ScrubberMode

    @property
    def warning(self) -> str | None:
        """The warning for the author about credentials; None if there are none."""
        return _warning(self.mode, self.kinds)


class SecretGuard:
    """Replaces, refuses or keeps credentials.

    Args:
        views: Gives the settings of workspaces; None if there are none.
        default: Mode of a workspace without a setting.
    """

    def __init__(self, views: ViewReader | None, default: ScrubberMode = DEFAULT_MODE) -> None:
        self.default = default
        self._modes = None if views is None else _kept_modes(views, default)

    def close(self) -> None:
        """Stop following the views."""
        if self._modes is not None:
            self._modes.close()

    async def _mode(self, workspace_id: str) -> ScrubberMode:
        return self.default if self._modes is None else await self._modes.of(workspace_id)

    async def text(self, workspace_id: str, text: str) -> Scrubbed:
        """Treat the credentials in a text; in mode ``block`` the caller must refuse the text."""
        secrets = find_secrets(text)
        mode = await self._mode(workspace_id) if secrets else self.default
        return Scrubbed(without(text, secrets) if mode == "redact" else text, kinds_of(secrets), mode)

    @staticmethod
    def suspects(accepted: Accepted) -> bool:
        """Whether an entry may contain credentials, so that ``entry`` has to search it."""
        return may_hold_secrets(accepted.body, accepted.entry_id)

    async def entry(self, accepted: Accepted, prefix: str = "") -> tuple[Accepted, str | None]:
        """Treat the credentials in an entry; returns the entry to store and a warning.

        Args:
            accepted: An entry for which ``suspects`` is true.
            prefix: Put before field names in errors.

        Raises:
            InvalidEntry: If the workspace refuses credentials; names each field with a credential.
            EntryTooLarge: If the entry with the notices exceeds 256 KiB.
        """
        record: dict[str, Any] = orjson.loads(accepted.body)
        kinds: dict[str, dict[str, None]] = {}
        cleaned = {name: _cleaned(record.get(name), kinds.setdefault(name, {})) for name in _TEXT_FIELDS}
        kinds = {name: kinds_found for name, kinds_found in kinds.items() if kinds_found}
        if not kinds:
            return accepted, None
        mode = await self._mode(accepted.workspace_id)
        named = tuple(dict.fromkeys(kind for kinds_found in kinds.values() for kind in kinds_found))
        if mode == "block":
            raise InvalidEntry(
                tuple(
                    FieldProblem(f"{prefix}{name}", f"holds credentials: {', '.join(kinds_found)}", HINT)
                    for name, kinds_found in kinds.items()
                )
            )
        if mode != "redact":
            return accepted, _warning(mode, named)
        record |= {name: cleaned[name] for name in kinds}
        record["summary"] = record["summary"][:MAX_SUMMARY]
        body = orjson.dumps(record)
        if len(body) > MAX_ENTRY_BYTES:
            raise EntryTooLarge(
                f"{prefix}entry {accepted.entry_id} has {len(body):,} bytes once its credentials are replaced, more than "
                f"{MAX_ENTRY_BYTES:,}",
                hint=HINT,
                field=f"{prefix}payload",
            )
        return replace(accepted, body=body), _warning(mode, named)


class Scrubs(Protocol):
    """Treats credentials in texts; implemented by ``append.Journal``."""

    async def scrubbed(self, workspace_id: str, text: str) -> Scrubbed:
        """Treat the credentials in a text; in mode ``block`` the caller must refuse the text."""
        ...


async def storable(journal: Scrubs, workspace_id: str, text: str, field: str, most_chars: int) -> str:
    """Treat the credentials in a text from which an id is made before it is recorded.

    Args:
        journal: Treats credentials by the settings of the workspace.
        workspace_id: The workspace.
        text: The text.
        field: Name of the text's field in the request.
        most_chars: Maximum length of the stored text; a notice may be longer than the credential it replaces.

    Raises:
        InvalidRequest: If the text has credentials that the workspace refuses, or is too long after their replacement.
    """
    scrubbed = await journal.scrubbed(workspace_id, text)
    if scrubbed.kinds and scrubbed.mode == "block":
        raise InvalidRequest((FieldProblem(field, f"holds credentials: {', '.join(scrubbed.kinds)}", HINT),))
    if scrubbed.text != text and len(scrubbed.text) > most_chars:
        problem = f"has {len(scrubbed.text)} characters once its credentials are replaced"
        raise InvalidRequest((FieldProblem(field, problem, f"send at most {most_chars:,}"),))
    return scrubbed.text


def _kept_modes(views: ViewReader, default: ScrubberMode) -> KeptValues[str, ScrubberMode]:
    def read(workspace_id: str) -> ScrubberMode:
        rows = views.rows(_MODE, [workspace_id])
        return rows[0][0] if rows else default

    return KeptValues(views, (MEMORY_CONFIG,), in_thread(read))


def _cleaned(value: Any, kinds: dict[str, None]) -> Any:
    """A JSON value in which notices replace credentials, in texts, in names and in values assigned to a name.

    Args:
        value: The value.
        kinds: Collects the kinds of the credentials, each once.
    """
    if isinstance(value, str):
        secrets = find_secrets(value)
        kinds |= dict.fromkeys(kinds_of(secrets))
        return without(value, secrets)
    if isinstance(value, list):
        return [_cleaned(part, kinds) for part in value]
    if isinstance(value, Mapping):
        return {_cleaned(name, kinds): _cleaned_value(name, part, kinds) for name, part in value.items()}
    return value


def _cleaned_value(name: str, value: Any, kinds: dict[str, None]) -> Any:
    """Clean the value assigned to a name; the name may show that it is a credential: ``{"password": "…"}``."""
    cleaned = _cleaned(value, kinds)
    if not isinstance(value, str) or cleaned != value:
        return cleaned
    assigned = f"{name}={value}"
    place = len(assigned) - len(value), len(assigned)
    secret = next((secret for secret in find_secrets(assigned) if (secret.start, secret.end) == place), None)
    if secret is None:
        return value
    kinds[secret.kind] = None
    return NOTICE.format(kind=secret.kind)


def _warning(mode: ScrubberMode, kinds: tuple[str, ...]) -> str | None:
    named = ", ".join(kinds)
    if not kinds or mode == "off":
        return None
    if mode == "redact":
        return f"removed from the content: {named}"
    return f"the content holds credentials ({named}): replace them by where they are kept"
