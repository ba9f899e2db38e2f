"""Consents: a journal or settings file that is found in a folder is used only after ``crew-journal trust``.

A cloned repository may contain both: a ``.crew-journal`` that leads to an attacker's service, and a
``.crew-journal.json`` that names another crew, agent or workspace. Therefore a consent for each path is stored outside
the folder, in ``crew-journal/trusted`` of the user's configuration, and is valid for one content: the journal's owner
token, or the text of the settings file.

Invariant: files in the folder cannot create, change or move a consent. A path that a person names (``--data-dir``, an
argument, ``CREW_JOURNAL_*``) needs no consent. Standard library only, because hooks import this module.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...schemas.core.errors import InvalidQuery, NotAllowed, NotFound
from ..data_dir import IGNORE_FILE, LOCK_FILE, TOKEN_FILE, make_private, read_owner_token, small_file, write_private
from .repository import root_of

JOURNAL_FOLDER: Final = ".crew-journal"
"""Name of the data directory that commands look for in the current folder."""
SETTINGS_FILE: Final = ".crew-journal.json"
"""Name of the settings file in a repository's main folder."""
STORE: Final = ("crew-journal", "trusted")
_NOT_YET: Final = ""
"""Content of a journal that has no owner's token yet."""
_START_FILES: Final = frozenset({IGNORE_FILE, LOCK_FILE, "up.log"})
"""Files of a data directory without a journal."""


@dataclass(frozen=True, slots=True)
class Consent:
    """A person's decision about one path.

    Attributes:
        path: The place; its parents are real folders, its last part may be a link.
        target: The path to which ``path`` resolves.
        content: SHA-256 of what was trusted; empty for a journal without an owner's token; None if the person refused.
    """

    path: str
    target: str
    content: str | None


@dataclass(frozen=True, slots=True)
class Trusted:
    """A path that a command trusts or refuses: a ``journal`` or ``settings``."""

    kind: str
    path: Path

    @property
    def shown(self) -> str:
        """The path, with unprintable characters escaped."""
        return _shown(self.path)


def check_journal(data_dir: Path) -> None:
    """Refuse a data directory that was found in a folder and is not trusted; an empty one is allowed.

    Raises:
        NotAllowed: If it is not trusted, or changed after it was trusted.
    """
    if _holds_nothing(data_dir):
        return
    consent = _consent(data_dir)
    if consent is None or consent.content is None:
        raise _refusal(f"the journal in {_shown(data_dir)} was found in this folder and is not trusted", data_dir)
    if (consent.target, consent.content) != (os.path.realpath(data_dir), _token_hash(data_dir)):
        raise _refusal(
            f"the journal in {_shown(data_dir)} is not the one that was trusted: its owner's token or its place changed",
            data_dir,
        )


def trusted_settings(path: Path) -> bytes | None:
    """The content of a settings file that is trusted; None if there is none, or a person refused it.

    Raises:
        NotAllowed: If the file is neither trusted nor refused, or changed after it was trusted.
    """
    if not os.path.lexists(path):
        return None
    consent = _consent(path)
    if consent is not None and consent.content is None:
        return None
    content = small_file(path)
    if content is None:
        raise _refusal(f"{_shown(path)} is not a regular file of at most 64 KB", path)
    if consent is None:
        raise _refusal(f"the settings in {_shown(path)} were found in this folder and are not trusted", path)
    if consent.content != _hash(content):
        raise _refusal(f"the settings in {_shown(path)} changed since they were trusted", path)
    return content


def claim_journal(data_dir: Path) -> bool:
    """Create a data directory if it is absent; an empty one becomes trusted.

    Returns:
        False if the consent could not be stored; the directory must then be named with ``--data-dir``.
    """
    is_new = data_dir.name == JOURNAL_FOLDER and _holds_nothing(data_dir)
    make_private(data_dir)
    if is_new:
        try:
            _write(Consent(_place(data_dir), os.path.realpath(data_dir), _NOT_YET))
        except (OSError, NotAllowed):
            return False
    return True


def note_token(data_dir: Path, token: str) -> None:
    """Extend the consent for a data directory to its new owner token; call it before the token is written."""
    consent = _consent(data_dir)
    if consent is not None and consent.content is not None and consent.target == os.path.realpath(data_dir):
        with contextlib.suppress(OSError, NotAllowed):
            _write(Consent(consent.path, consent.target, _hash(token.encode())))


def is_noted(data_dir: Path) -> bool:
    """Whether there is a consent for a data directory, which allows to verify its service."""
    return data_dir.name == JOURNAL_FOLDER and _consent(data_dir) is not None


def trust(path: Path) -> Trusted:
    """Trust a journal or a settings file, as it is now.

    Args:
        path: The path, or a folder with a journal or settings file that is not trusted yet.

    Raises:
        NotFound: If there is none.
        InvalidQuery: If the folder has both, and neither is trusted.
        NotAllowed: If the path cannot be read, or the consent cannot be stored.
    """
    settings_files = _found(path)
    chosen = _only(
        [trusted for trusted in settings_files if not _is_trusted(trusted)] or settings_files[:1], path, "trust"
    )
    content = _token_hash(chosen.path) if chosen.kind == "journal" else _settings_hash(chosen.path)
    _keep(Consent(_place(chosen.path), os.path.realpath(chosen.path), content))
    return chosen


def untrust(path: Path) -> Trusted:
    """Refuse a journal, which is then not used, or a settings file, which is then ignored.

    Raises:
        NotFound: If there is none.
        InvalidQuery: If the folder has both.
        NotAllowed: If the refusal cannot be stored.
    """
    chosen = _only(_found(path), path, "untrust")
    _keep(Consent(_place(chosen.path), os.path.realpath(chosen.path), None))
    return chosen


def _found(path: Path) -> list[Trusted]:
    path = path.absolute()
    kinds = {JOURNAL_FOLDER: "journal", SETTINGS_FILE: "settings"}
    places = [path] if path.name in kinds else [path / JOURNAL_FOLDER, root_of(path) / SETTINGS_FILE]
    return [Trusted(kinds[place.name], place) for place in places if os.path.lexists(place)]


def _only(candidates: list[Trusted], path: Path, verb: str) -> Trusted:
    if not candidates:
        raise NotFound(
            f"there is neither a journal ({JOURNAL_FOLDER}) nor a settings file ({SETTINGS_FILE}) in {_shown(path)}",
            hint="name the folder that has one; a journal at another place is named with --data-dir and needs no trust",
        )
    if len(candidates) > 1:
        commands = " or ".join(f"`{_command(verb, trusted.path)}`" for trusted in candidates)
        raise InvalidQuery(
            f"there are a journal and settings in {_shown(path)}", hint=f"look at both, then run {commands}"
        )
    return candidates[0]


def _is_trusted(trusted: Trusted) -> bool:
    try:
        if trusted.kind == "journal":
            check_journal(trusted.path)
            return True
        return trusted_settings(trusted.path) is not None
    except NotAllowed:
        return False


def _keep(consent: Consent) -> None:
    try:
        _write(consent)
    except OSError as error:
        raise NotAllowed(
            f"the consent cannot be kept in {error.filename or consents_folder()}: {error.strerror}",
            hint="make this directory writable, or set XDG_CONFIG_HOME",
        ) from None


def _holds_nothing(data_dir: Path) -> bool:
    """Whether a path is free or a directory without a journal."""
    if not os.path.lexists(data_dir):
        return True
    if data_dir.is_symlink():
        return False
    try:
        with os.scandir(data_dir) as entries:
            return all(entry.name in _START_FILES and entry.is_file(follow_symlinks=False) for entry in entries)
    except OSError:
        return False


def _token_hash(data_dir: Path) -> str:
    if not os.path.lexists(data_dir / TOKEN_FILE):
        return _NOT_YET
    token = read_owner_token(data_dir)
    if token is None:
        raise NotAllowed(
            f"the owner's token in {_shown(data_dir / TOKEN_FILE)} cannot be read",
            hint="name the service with --url and --token",
        )
    return _hash(token.encode())


def _settings_hash(path: Path) -> str:
    content = small_file(path)
    if content is None:
        raise NotAllowed(
            f"{_shown(path)} is not a regular file of at most 64 KB",
            hint=f"replace it by a file, or run `{_command('untrust', path)}` to work without it",
        )
    return _hash(content)


def _refusal(problem: str, path: Path) -> NotAllowed:
    otherwise = "or name a journal with --data-dir or --url"
    if path.name == SETTINGS_FILE:
        otherwise = f"`{_command('untrust', path)}` to work without it"
    return NotAllowed(problem, hint=f"look at it, then run `{_command('trust', path)}` if it is yours; {otherwise}")


def _command(verb: str, path: Path) -> str:
    client = "crew-journal-client"
    name = client if Path(sys.argv[0]).name == client else "crew-journal"
    return f"{name} {verb} {shlex.quote(_shown(path))}"


def _shown(path: Path) -> str:
    text = str(path.absolute())
    return text if text.isprintable() else ascii(text)


def _hash(content: bytes) -> str:
    from hashlib import (
        sha256,
    )  # imported late, because a hook in a folder without a journal or settings does not need it

    return sha256(content).hexdigest()


def _place(path: Path) -> str:
    """The path with its parents resolved; a link at its end is not resolved."""
    absolute = path.absolute()
    return str(Path(os.path.realpath(absolute.parent), absolute.name))


def consents_folder() -> Path:
    """The folder of the consents.

    Raises:
        NotAllowed: If there is no home directory.
    """
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if not base.is_absolute():  # the specification says to ignore it then
        try:
            base = Path.home() / ".config"
        except RuntimeError:
            raise NotAllowed(
                "there is no home directory to keep consents in", hint="set HOME or XDG_CONFIG_HOME"
            ) from None
    return base.joinpath(*STORE)


def _consent(path: Path) -> Consent | None:
    place = _place(path)
    try:
        kept = json.loads(
            small_file(consents_folder() / f"{_hash(place.encode(errors='surrogateescape'))}.json") or b""
        )
        consent = Consent(str(kept["path"]), str(kept["target"]), kept["content"])
    except (ValueError, KeyError, TypeError, NotAllowed):
        return None
    return consent if consent.path == place else None


def _write(consent: Consent) -> None:
    path = consents_folder() / f"{_hash(consent.path.encode(errors='surrogateescape'))}.json"
    kept = {"path": consent.path, "target": consent.target, "content": consent.content}
    write_private(path, json.dumps(kept) + "\n")
