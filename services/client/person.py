"""Stores the person whose prompts this user's hooks submit, and the token that speaks for the person.

``connect`` creates the token and stores it here. Hooks submit prompts with it, so that prompts are recorded as the
person's own words and the session's memory block contains the person's model.

Invariant: a token is used only together with the token that created it: it is stored under the hash of that token, in a
file outside all repositories that only the user can read. Standard library only, because hooks import this module.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ...schemas.core.user_folders import state_folder
from ..data_dir import write_private
from .find import ServiceAddress

_FILE: Final = "persons.json"
_OF_OTHERS: Final = 0o077
_TAG: Final = re.compile(r"^\s*</?[A-Za-z][\w-]*[^<>\n]*>", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Person:
    """A person and the token that speaks for the person."""

    name: str
    token_id: str
    token: str = field(repr=False)

    def at(self, address: ServiceAddress) -> ServiceAddress:
        """The same service, with the person's token."""
        return replace(address, token=self.token)


def person_at(address: ServiceAddress, program: str) -> Person | None:
    """The person whose prompts a program's hooks submit to a service; None if ``connect`` stored no token for it."""
    kept = _read().get(_key(address, program))
    try:
        return None if kept is None else Person(**kept)
    except TypeError:
        return None


def keep_person(address: ServiceAddress, program: str, person: Person | None) -> None:
    """Store the person whose prompts a program's hooks submit to a service; None removes the record.

    Raises:
        OSError: If the file cannot be written.
    """
    kept = _read()
    kept.pop(_key(address, program), None)
    if person is not None:
        kept[_key(address, program)] = {"name": person.name, "token_id": person.token_id, "token": person.token}
    write_private(_path(), json.dumps(kept, indent=1))


def is_typed(text: str) -> bool:
    """Whether a prompt may be what the person typed.

    Coding agents insert command output, repository instructions and notices as prompts, each with a tag at the
    beginning of a line; these prompts are not the person's own words.
    """
    return _TAG.search(text) is None


def _key(address: ServiceAddress, program: str) -> str:
    return f"{hashlib.sha256(address.token.encode()).hexdigest()}/{program}"


def _path() -> Path:
    return state_folder() / _FILE


def _read() -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError), _path().open("rb") as file:
        about = os.fstat(file.fileno())
        if os.name == "posix" and (about.st_uid != os.getuid() or about.st_mode & _OF_OTHERS):
            return {}  # other users may have written or read it
        value = json.load(file)
        return value if isinstance(value, dict) else {}
    return {}
