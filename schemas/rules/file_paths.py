"""Paths of memory documents below ``/memories``, as in the memory tool of Anthropic's API.

Invariant: a path names at most one document, and every document has one path. ``AGENT.md``, ``daily/<date>.md`` and the like
are the agent's; those of its crew are below ``crew/``, those of the workspace below ``workspace/``; every other path is a
file of the agent.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..errors import FileRefused
from .tiers import FILES, SHARED_FOLDERS, TIERS, Scope, is_tier_of, key_problem, scope_of, tier_of_label

ROOT: Final = "/memories"
_CODES: Final = (("%2e", "."), ("%2f", "/"), ("%5c", "/"), ("\\", "/"))
_FOLDERS: Final = {scope: f"{folder}/" for folder, scope in SHARED_FOLDERS.items()}


class DocumentPlace(NamedTuple):
    """The document that a path names."""

    scope: Scope
    tier: str
    key: str | None


def inner_path(path: str) -> str:
    """A path relative to ``/memories``, empty for ``/memories`` itself.

    Raises:
        FileRefused: If it lies elsewhere or has a part ``..``, percent-encoded or not.
    """
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise FileRefused(f"Path must start with {ROOT}, got: {path}", field="path")
    decoded = path.lower()
    for code, character in _CODES:
        decoded = decoded.replace(code, character)
    if ".." in decoded.split("/"):
        raise FileRefused(f"Path {path} would escape {ROOT} directory", field="path")
    return "/".join(part for part in path[len(ROOT) :].split("/") if part not in ("", "."))


def place_of(inner: str) -> DocumentPlace | None:
    """The document that a relative path names; None if no document can have it."""
    folder, _, rest = inner.partition("/")
    scope = SHARED_FOLDERS.get(folder, Scope.AGENT)
    tier_and_key = tier_of_label(inner if scope is Scope.AGENT else rest)
    if tier_and_key is not None and tier_and_key[0] != FILES and is_tier_of(scope, tier_and_key[0]):
        return DocumentPlace(scope, *tier_and_key)
    return DocumentPlace(Scope.AGENT, FILES, inner) if key_problem(TIERS[FILES], inner) is None else None


def path_of(owner: str, tier: str, key: str | None) -> str:
    """The relative path of a document; inverse of ``place_of``."""
    label = key if tier == FILES and key is not None else TIERS[tier].label_of(key)
    return _FOLDERS.get(scope_of(owner)[0], "") + label


def path_problem(inner: str) -> str:
    """Why a relative path cannot name a document."""
    folder = inner.partition("/")[0]
    if folder in SHARED_FOLDERS:
        scope = SHARED_FOLDERS[folder]
        labels = (rule.label_of(f"<{rule.key.value}>") for rule in TIERS.values() if scope in rule.writers)
        return f"{ROOT}/{folder} holds only {', '.join(labels)}"
    return key_problem(TIERS[FILES], inner) or ""
