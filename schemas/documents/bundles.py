"""Bundles: the memory of an agent and its crew as plain files, written here or by other systems (contract §21).

Invariants: an export depends only on the documents, so that importing and exporting it again gives the same bytes. An
import writes only documents of the tiers, by paths in canonical form; other files are listed with the reason. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ..core.subjects import is_document_key
from .rules import TIERS, Scope, is_tier_of, key_problem, tier_of_label

MAX_BYTES: Final = 32 * 1024 * 1024
"""Maximum UTF-8 bytes of all files of a bundle (contract §21)."""
MAX_FILES: Final = 5_000
MANIFEST: Final = "okf.yaml"
OKF_VERSION: Final = "0.1"
"""Version of the Open Knowledge Format that the Markdown files follow."""
FORMATS: Final = ("okf", "crewship", "nanoclaw", "openclaw")
LEARNED: Final = "crew/learned.md"
"""The crew's learned rules: exported and never imported, like lessons."""
_SCOPES: Final = (Scope.AGENT, Scope.CREW)
_GLOBAL: Final = "global"
_RESERVED: Final = frozenset({"index.md", "log.md"})
_FRONT_MATTER: Final = re.compile(r"---\n(.*?)\n---\n", re.DOTALL)
_TYPE: Final = re.compile(r"^type:[ \t]*[^\s#]", re.MULTILINE)
_NOT_IN_KEYS: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_KEY_CHARS: Final = 64
_INSTRUCTIONS: Final = "instructions or settings of that system, not memory"


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A file: its path within the bundle, and its text."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class TargetDocument:
    """The document that a file becomes."""

    scope: Scope
    tier: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan for a file: a document with a text, or the reason why it is skipped (``kind`` in one word)."""

    path: str
    target: TargetDocument | None = None
    content: str = ""
    kind: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of the importer: whether crew documents are imported, the group, the slug of a peer card's person."""

    with_crew: bool = False
    group: str | None = None
    person_slug: str | None = None


class NotABundle(ValueError):
    """The files are in no known format, or a choice is missing; ``fix`` says what to do."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.fix = fix


def exported(documents: Iterable[tuple[str, str, str]]) -> list[BundleFile]:
    """The files of a bundle, by path, the manifest first.

    Args:
        documents: Path (``agent/daily/2026-05-14.md``), type (``memory.daily``) and text of each.
    """
    entries = sorted(documents)
    listed = "".join(f"  - path: {json.dumps(path)}\n    type: {kind}\n" for path, kind, _ in entries)
    manifest = f'format: okf\nversion: 1\nokf_version: "{OKF_VERSION}"\ndocuments:\n{listed}'
    if not entries:
        manifest = manifest.replace("documents:\n", "documents: []\n")
    return [
        BundleFile(MANIFEST, manifest),
        *(BundleFile(path, _header(path, kind) + text) for path, kind, text in entries),
    ]


def _header(path: str, kind: str) -> str:
    title = path.removesuffix(".md").rpartition("/")[2]
    return f"---\ntype: {kind}\ntitle: {json.dumps(title)}\npath: {json.dumps(path)}\n---\n"


def planned(files: Iterable[BundleFile], choices: Choices, wanted: str | None = None) -> tuple[str, list[Planned]]:
    """The format, and the plan for each file, by path.

    Raises:
        NotABundle: If the format is not known, or a choice is missing.
    """
    below_root = _below_root({file.path: file.content for file in files})
    name = wanted or _format_of(below_root)
    plan = sorted(_READERS[name](below_root, choices), key=lambda item: item.path)
    return name, [_checked(item, choices) for item in plan]


def _below_root(files: dict[str, str]) -> dict[str, str]:
    """The files without the folder that contains all of them, as in many archives."""
    roots = {path.partition("/")[0] for path in files}
    if len(roots) != 1 or any("/" not in path for path in files) or roots <= {"groups", "agent", "crew"}:
        return files
    return {path.partition("/")[2]: content for path, content in files.items()}


def _format_of(files: Mapping[str, str]) -> str:
    markdown = [path for path in files if path.endswith(".md") and path.rpartition("/")[2] not in _RESERVED]
    if files.get(MANIFEST, "").startswith("format: okf\n"):
        return "okf"
    if any(_group_of(path) and path.endswith("/CLAUDE.md") for path in files):
        return "nanoclaw"
    if "AGENT.md" in files or "CREW.md" in files:
        return "crewship"
    if "MEMORY.md" in files or "SOUL.md" in files:
        return "openclaw"
    if markdown and all(_has_type(files[path]) for path in markdown):
        return "okf"
    raise NotABundle("the format of the files is not known", f"use one of {', '.join(FORMATS)}; docs/portability.md")


def _has_type(text: str) -> bool:
    header = _FRONT_MATTER.match(text)
    return header is not None and _TYPE.search(header[1]) is not None


def _checked(planned: Planned, choices: Choices) -> Planned:
    """A planned document, unless its key is not valid, or it belongs to the crew and no crew is named."""
    target = planned.target
    if target is None:
        return planned
    if target.scope is Scope.CREW and not choices.with_crew:
        return Planned(planned.path, kind="crew", detail="documents of a crew are imported only if a crew is named")
    rule = TIERS[target.tier]
    if not rule.writable:
        return Planned(planned.path, kind="derived", detail="is rendered from entries and never imported")
    if not is_tier_of(target.scope, target.tier):
        return Planned(planned.path, kind="path", detail=f"there is no {target.tier} of a {target.scope.value}")
    if (problem := key_problem(rule, target.key)) is not None:
        return Planned(planned.path, kind="path", detail=f"its key is not valid: {problem}")
    return planned


def _okf(files: Mapping[str, str], choices: Choices) -> Iterator[Planned]:
    is_ours = files.get(MANIFEST, "").startswith("format: okf\n")
    for path, text in files.items():
        if path == MANIFEST:
            continue
        yield _own(path, text) if is_ours else _concept(path, text)


def _own(path: str, text: str) -> Planned:
    if path == LEARNED:
        return Planned(path, kind="derived", detail="is rendered from entries and never imported")
    target = _target_of(path)
    if target is None:
        return Planned(path, kind="path", detail="no document has this path")
    header = _FRONT_MATTER.match(text)
    has_path = header is not None and f"path: {json.dumps(path)}" in header[1].split("\n")
    return Planned(path, target, text[header.end() :] if header is not None and has_path else text)


def _target_of(path: str) -> TargetDocument | None:
    folder, _, label = path.partition("/")
    tier_and_key = tier_of_label(label) if folder in _SCOPES and is_document_key(label) else None
    return None if tier_and_key is None else TargetDocument(Scope(folder), *tier_and_key)


def _concept(path: str, text: str) -> Planned:
    """A concept file of another producer becomes a topic, front matter included."""
    if not path.endswith(".md") or path.rpartition("/")[2] in _RESERVED:
        return Planned(path, kind="path", detail="not a concept of the Open Knowledge Format")
    key = _NOT_IN_KEYS.sub("-", path.removesuffix(".md")).strip("-.")[:_KEY_CHARS]
    return Planned(path, TargetDocument(Scope.CREW, "topics", key), text)


def _crewship(files: Mapping[str, str], choices: Choices) -> Iterator[Planned]:
    for path, text in files.items():
        tier_and_key = tier_of_label(path) if is_document_key(path) else None
        if tier_and_key is None:
            yield Planned(path, kind="path", detail="no document has this path")
            continue
        of_agent = is_tier_of(Scope.AGENT, tier_and_key[0]) and (
            "AGENT.md" in files or not is_tier_of(Scope.CREW, tier_and_key[0])
        )
        scope = Scope.AGENT if of_agent else Scope.CREW
        yield Planned(path, TargetDocument(scope, *tier_and_key), text)


def _openclaw(files: Mapping[str, str], choices: Choices) -> Iterator[Planned]:
    persona = [files[name] for name in ("IDENTITY.md", "SOUL.md") if files.get(name, "").strip()]
    for path, text in files.items():
        if path == "MEMORY.md":
            yield Planned(path, TargetDocument(Scope.AGENT, "AGENT"), text)
        elif path == "USER.md":
            yield _card(path, text, choices)
        elif path == "SOUL.md" or (path == "IDENTITY.md" and "SOUL.md" not in files):
            yield Planned(path, TargetDocument(Scope.AGENT, "PERSONA"), "\n".join(persona))
        elif path == "IDENTITY.md":
            yield Planned(path, kind="joined", detail="is part of PERSONA.md, with SOUL.md")
        elif path.startswith("memory/") and path.endswith(".md"):
            yield _note(path, path.removeprefix("memory/"), text)
        else:
            yield Planned(path, kind="skipped", detail=_INSTRUCTIONS)


def _nanoclaw(files: Mapping[str, str], choices: Choices) -> Iterator[Planned]:
    groups = sorted({group for path in files if (group := _group_of(path)) not in (None, _GLOBAL)})
    group = choices.group or (groups[0] if len(groups) == 1 else None)
    if group is None and groups:
        raise NotABundle(f"there are {len(groups)} groups: {', '.join(map(str, groups))}", "name one as group")
    if group is not None and group not in groups:
        raise NotABundle(f"there is no group {group!r}", f"name one of {', '.join(map(str, groups))}")
    for path, text in files.items():
        owner, name = _group_of(path), path.split("/", 2)[-1]
        if owner == _GLOBAL and name == "CLAUDE.md":
            yield Planned(path, TargetDocument(Scope.CREW, "CREW"), text)
        elif owner is None or owner != group:
            yield Planned(
                path,
                kind="skipped",
                detail=_INSTRUCTIONS if owner is None else f"belongs to the group {owner}",
            )
        elif name == "CLAUDE.md":
            yield Planned(path, TargetDocument(Scope.AGENT, "AGENT"), text)
        elif name == "USER.md":
            yield _card(path, text, choices)
        elif name.endswith(".md"):
            yield _note(path, name, text)
        else:
            yield Planned(path, kind="skipped", detail=_INSTRUCTIONS)


def _group_of(path: str) -> str | None:
    parts = path.split("/", 2)
    return parts[1] if len(parts) == 3 and parts[0] == "groups" else None


def _card(path: str, text: str, choices: Choices) -> Planned:
    if choices.person_slug is None:
        return Planned(path, kind="person", detail="is about a person: name the person to import it as a peer card")
    return Planned(path, TargetDocument(Scope.AGENT, "peers", choices.person_slug), text)


def _note(path: str, name: str, text: str) -> Planned:
    """A day's notes become its log, other notes a file of the agent."""
    day = name.removesuffix(".md")
    if key_problem(TIERS["daily"], day) is None:
        return Planned(path, TargetDocument(Scope.AGENT, "daily", day), text)
    return Planned(path, TargetDocument(Scope.AGENT, "files", f"notes/{name}"), text)


_READERS: Final[Mapping[str, Callable[[Mapping[str, str], Choices], Iterator[Planned]]]] = {
    "okf": _okf,
    "crewship": _crewship,
    "nanoclaw": _nanoclaw,
    "openclaw": _openclaw,
}
