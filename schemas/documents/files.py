"""The effect of commands on the text of memory files, and their answers.

Invariant: messages and line numbers are exactly those of Anthropic's memory tool
(``anthropic/lib/tools/_beta_builtin_memory_tool.py``); models are trained on them. One thing differs: the size of a
folder is the sum of its files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ..core.errors import FileRefused
from .rules import FILES, SHARED_FOLDERS, TIERS, Scope, is_tier_of, key_problem, scope_of, tier_of_label

LISTED_LEVELS: Final = 2
_NUMBER_WIDTH: Final = 6
_CONTEXT_LINES: Final = 2
_UNITS: Final = "BKMG"


def listing(path: str, inner: str, sizes: Mapping[str, int]) -> str | None:
    """A folder and its content, two levels deep; None if there is no such folder.

    Args:
        path: The folder's path in the request.
        inner: The folder's path below ``/memories``.
        sizes: Path below ``/memories`` → bytes, of every file.
    """
    prefix = f"{inner}/" if inner else ""
    below = {name[len(prefix) :]: size for name, size in sizes.items() if name.startswith(prefix)}
    if inner and not below:
        return None
    lines = [f"{file_size(sum(below.values()))}\t{path}"]
    lines += [f"{file_size(size)}\t{path}/{name}" for size, name in _items(below, LISTED_LEVELS)]
    header = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
    return "\n".join([header, *lines])


def _items(below: Mapping[str, int], levels: int) -> Iterator[tuple[int, str]]:
    heads: dict[str, dict[str, int]] = {}
    for name, size in below.items():
        head, slash, rest = name.partition("/")
        if not head.startswith("."):
            heads.setdefault(head + slash, {})[rest] = size
    for head in sorted(heads, key=lambda name: name.rstrip("/")):
        yield sum(heads[head].values()), head
        if head.endswith("/") and levels > 1:
            yield from ((size, head + name) for size, name in _items(heads[head], levels - 1))


def file_size(size: int) -> str:
    """``0B``, ``512B``, ``1.5K``, ``4K``."""
    if size == 0:
        return "0B"
    unit = min((size.bit_length() - 1) // 10, len(_UNITS) - 1)
    scaled = size / 1024**unit
    return f"{int(scaled)}{_UNITS[unit]}" if scaled == int(scaled) else f"{scaled:.1f}{_UNITS[unit]}"


def numbered(path: str, text: str, view_range: Sequence[int] | None) -> str:
    """The lines of a file with their numbers.

    Args:
        path: The file's path in the request.
        text: Its text.
        view_range: First and last line, from 1; -1 for the end.
    """
    lines, first = text.split("\n"), 1
    if view_range is not None:
        start, end = max(1, view_range[0]) - 1, view_range[1]
        lines, first = lines[start : len(lines) if end == -1 else end], start + 1
    return f"Here's the content of {path} with line numbers:\n" + "\n".join(_numbered(lines, first))


def replaced(path: str, text: str, old: str, new: str) -> tuple[str, str]:
    """The text with ``old`` replaced, and the answer.

    Raises:
        FileRefused: If ``old`` does not occur exactly once.
    """
    count = text.count(old)
    if count == 0:
        raise FileRefused(
            f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.", field="old_str"
        )
    if count > 1:
        lines = ", ".join(str(text.count("\n", 0, at) + 1) for at in _places(text, old))
        raise FileRefused(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {lines}. "
            "Please ensure it is unique",
            field="old_str",
        )
    changed = text.count("\n", 0, text.find(old))
    text = text.replace(old, new)
    first = max(0, changed - _CONTEXT_LINES)
    snippet = _numbered(text.split("\n")[first : changed + _CONTEXT_LINES + 1], first + 1)
    header = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
    return text, "\n".join([header, *snippet])


def inserted(path: str, text: str, after_line: int, new: str) -> tuple[str, str]:
    """The text with ``new`` inserted after a line (0 for the start), and the answer.

    Raises:
        FileRefused: If there is no such line.
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if not 0 <= after_line <= len(lines):
        raise FileRefused(
            f"Invalid `insert_line` parameter: {after_line}. It should be within the range [0, {len(lines)}].",
            field="insert_line",
        )
    lines.insert(after_line, new.rstrip("\n"))
    text = "\n".join(lines)
    return text if text.endswith("\n") else f"{text}\n", f"The file {path} has been edited."


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at != -1:
        yield at
        at = text.find(part, at + 1)


def _numbered(lines: Sequence[str], first: int) -> list[str]:
    return [f"{str(number).rjust(_NUMBER_WIDTH)}\t{line}" for number, line in enumerate(lines, first)]


# Paths of memory documents below ``/memories``, as in the memory tool of Anthropic's API.


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
        FileRefused: If the path is not below ``/memories`` or has a part ``..``, percent-encoded or not.
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
