"""Memory documents: tiers, the effect of a write on a text, writes listed as entries, pins (contract §14).

Invariant: a tier, an owner and a key name one document; the owner carries its kind (``a-``, ``c-``, ``w``), so a
document of agent ``support`` and one of crew ``support`` are never the same.
"""

from __future__ import annotations

import hashlib
import re
from calendar import monthrange
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from ..core.entry import ActorType, JournalEntry
from ..core.envelope import DocumentWritten, EntryRecorded
from ..core.errors import FileRefused
from ..core.subjects import is_document_key
from ..core.timestamps import day_of, from_ms
from ..prompt.assembler import notice_of, one_line
from ..text.injection import finding_in
from ..text.injection import finding_in as injection_finding_in
from .events import DocumentAction


class Scope(StrEnum):
    """The kind of owner of a document. No tier belongs to a user; a newer node may write such documents."""

    AGENT = "agent"
    CREW = "crew"
    WORKSPACE = "workspace"
    USER = "user"


class MinRole(StrEnum):
    """The minimum role that may write a tier: the agent itself, a LEAD of the crew, or an operator (OWNER, ADMIN)."""

    AGENT = "agent"
    LEAD = "lead"
    OPERATOR = "operator"


class KeyKind(StrEnum):
    """The form of the key of a document in a tier."""

    NONE = "none"
    DATE = "date"
    SLUG = "slug"
    NAME = "name"
    PATH = "path"


@dataclass(frozen=True, slots=True)
class TierRule:
    """The properties of a tier.

    Attributes:
        writers: Scope → minimum role that may write there. These are the tier's scopes; the first is the default.
        label: Name of its file below ``.memory``; ``{key}`` stands for the key.
        key: The form of its key.
        cap_bytes: Maximum size of a document in bytes; None for a rendering, which cannot be written.
        file_cap_bytes: Maximum size after a write from a directory, if it differs (contract §0 row 10).
        title: Its title in a prompt block; ``{key}`` stands for the key.
    """

    writers: dict[Scope, MinRole]
    label: str
    title: str
    key: KeyKind = KeyKind.NONE
    cap_bytes: int | None = None
    file_cap_bytes: int | None = None

    @property
    def writable(self) -> bool:
        """Whether there are documents of this tier; a rendering has none."""
        return self.cap_bytes is not None

    def cap_of(self, source: str) -> int:
        """Maximum size in bytes of a document after a write from ``source``; 0 for a rendering."""
        return (self.file_cap_bytes if source == MIRROR else None) or self.cap_bytes or 0

    def label_of(self, key: str | None) -> str:
        """The label of a document: its path below ``.memory``."""
        return self.label.format(key=key)


MIRROR: Final = "mirror"
"""Source of a write that comes from a directory."""
DAILY_FILE_CAP_BYTES: Final = 100_000
"""Maximum size in bytes of a daily log that is written as a file (seed 3, Limits)."""
AGENT_TOTAL_BYTES: Final = 10_000_000
"""Maximum number of bytes of all documents of one agent (seed 3, Limits); likewise of one crew."""
SOFT_CAP_PERCENT: Final = 80
"""Share of the cap above which an answer contains the text and asks to shorten it."""

TIERS: Final[dict[str, TierRule]] = {
    "AGENT": TierRule({Scope.AGENT: MinRole.AGENT}, "AGENT.md", "AGENT.md (long-term memory)", cap_bytes=4_000),
    "CREW": TierRule({Scope.CREW: MinRole.LEAD}, "CREW.md", "CREW.md (crew-wide knowledge)", cap_bytes=4_000),
    "PERSONA": TierRule(
        {Scope.AGENT: MinRole.OPERATOR, Scope.CREW: MinRole.OPERATOR}, "PERSONA.md", "PERSONA.md", cap_bytes=1_500
    ),
    "WORKSPACE": TierRule(
        {Scope.WORKSPACE: MinRole.OPERATOR}, "WORKSPACE.md", "WORKSPACE.md (workspace-wide knowledge)", cap_bytes=4_000
    ),
    "pins": TierRule(
        {Scope.AGENT: MinRole.OPERATOR, Scope.CREW: MinRole.OPERATOR, Scope.WORKSPACE: MinRole.OPERATOR},
        "pins.md",
        "pins.md (pinned by operators)",
        cap_bytes=8_000,
    ),
    "daily": TierRule(
        {Scope.AGENT: MinRole.AGENT, Scope.CREW: MinRole.LEAD},
        "daily/{key}.md",
        "Daily log: {key}",
        key=KeyKind.DATE,
        cap_bytes=30_000,
        file_cap_bytes=DAILY_FILE_CAP_BYTES,
    ),
    "peers": TierRule({Scope.AGENT: MinRole.AGENT}, "peers/{key}.md", "Peer: {key}", key=KeyKind.SLUG, cap_bytes=1_500),
    "topics": TierRule(
        {Scope.CREW: MinRole.LEAD}, "topics/{key}.md", "Topic: {key}", key=KeyKind.NAME, cap_bytes=250_000
    ),
    "procedures": TierRule(
        {Scope.AGENT: MinRole.AGENT, Scope.CREW: MinRole.LEAD, Scope.WORKSPACE: MinRole.OPERATOR},
        "procedures/{key}.md",
        "Procedure: {key}",
        key=KeyKind.NAME,
        cap_bytes=32_000,
    ),
    "files": TierRule({Scope.AGENT: MinRole.AGENT}, "files/{key}", "File: {key}", key=KeyKind.PATH, cap_bytes=100_000),
    "users": TierRule(
        {Scope.CREW: MinRole.OPERATOR}, "users/{key}.md", "users/{key}.md (operator model)", key=KeyKind.SLUG
    ),
    "lessons": TierRule({Scope.CREW: MinRole.OPERATOR, Scope.AGENT: MinRole.OPERATOR}, "lessons.md", "lessons.md"),
}
"""Every tier by its name, case-sensitive. Contract §14 gives the caps, except for WORKSPACE, topics, procedures, files."""
WRITABLE: Final = tuple(tier for tier, rule in TIERS.items() if rule.writable)
"""Tiers that have documents; the others are rendered from entries and can only be read."""
RETAINED_TIERS: Final = tuple(tier for tier in WRITABLE if tier != "pins")
"""Tiers whose documents a retention may erase; what operators pinned stays."""
FILES: Final = "files"
"""Tier of the files whose names an agent chooses freely."""
SHARED_FOLDERS: Final = {"crew": Scope.CREW, "workspace": Scope.WORKSPACE}
"""Folders of the tier ``files`` with documents that are not the agent's own."""

_SLUG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d\Z")


def is_mirrored(tier: str) -> bool:
    """Whether a mirror keeps documents of the tier as files.

    Renderings and the files of tools, whose keys are paths, stay in the journal.
    """
    return TIERS[tier].writable and TIERS[tier].key is not KeyKind.PATH


def key_problem(rule: TierRule, key: str | None) -> str | None:
    """The problem of a given key; None if it is valid. A missing key is a different error."""
    if rule.key is KeyKind.NONE:
        return None if key is None else "this tier has one document and takes no key"
    if key is None:
        return None
    if rule.key is KeyKind.DATE:
        return None if _is_date(key) else "not a date such as 2026-05-14"
    if rule.key is KeyKind.PATH:
        return _path_problem(key)
    if not _SLUG.match(key) or ".." in key or key.endswith(".md"):
        return "use 1 to 64 of A-Z a-z 0-9 _ . -, starting with a letter or digit, without .. and without .md"
    return None


def _path_problem(key: str) -> str | None:
    if not is_document_key(key):
        return "use a path such as notes/a.md, without empty parts, ., .., backslashes and control characters"
    other = tier_of_label(key)
    if key.partition("/")[0] in SHARED_FOLDERS or (other and other[0] != FILES and is_tier_of(Scope.AGENT, other[0])):
        return "this path belongs to a document of another tier"
    return None


def is_tier_of(scope: Scope, tier: str) -> bool:
    """Whether a tier has documents of this scope."""
    return scope in TIERS[tier].writers


def _is_date(key: str) -> bool:
    if not _DATE.match(key):
        return False
    year, month, day = map(int, key.split("-"))
    return year > 0 and 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]


_SCOPES: Final = {"a": Scope.AGENT, "c": Scope.CREW, "u": Scope.USER}


def owner_of(scope: Scope, name: str | None) -> str:
    """The owner in a subject: ``a-<agent>``, ``c-<crew>`` or ``w``."""
    return "w" if scope is Scope.WORKSPACE else f"{scope.value[0]}-{name}"


def scope_of(owner: str) -> tuple[Scope, str | None]:
    """Scope and id of an owner; inverse of ``owner_of``."""
    if owner == "w":
        return Scope.WORKSPACE, None
    return _SCOPES[owner[0]], owner[2:]


def tier_of_label(label: str) -> tuple[str, str | None] | None:
    """Tier and key of a label such as ``daily/2026-05-14.md``; None if no tier has such a label."""
    for tier, rule in TIERS.items():
        before, mark, after = rule.label.partition("{key}")
        if not mark:
            if label == rule.label:
                return tier, None
        elif label.startswith(before) and label.endswith(after) and len(label) > len(before) + len(after):
            key = label[len(before) : len(label) - len(after)]
            if key_problem(rule, key) is None:
                return tier, key
    return None


# The effect of a write on a document's text.


SCAN_OVERLAP: Final = 2_000
"""Characters that are scanned twice: together with the text before them and with the text after them."""
SCAN_WINDOW: Final = 2 * SCAN_OVERLAP
"""Number of characters of an appended text that are scanned at once, at 1 to 3 µs each."""


def joint(text: str, piece: str) -> str:
    """The text that an append adds to ``text``: the piece on lines of its own."""
    return ("\n" if text and not text.endswith("\n") else "") + piece + ("" if piece.endswith("\n") else "\n")


def sha256_of(text: str) -> str:
    """The SHA-256 of a text in UTF-8, 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def appended_finding(text: str, clean: int) -> tuple[int, str | None]:
    """The finding of the scanners that blocks a text after an append.

    It is scanned in windows of ``SCAN_WINDOW`` characters, one every ``SCAN_OVERLAP``, the last of which may be
    shorter. Findings in a complete window are final, because appends do not change it.

    Args:
        text: The whole text.
        clean: Start of the first window: the result of an earlier call, or ``SCAN_OVERLAP`` characters before the end
            of a text in which ``finding_in`` found nothing, at least 0.

    Returns:
        Start of the first window that is not complete or not clean, and the finding in it.
    """
    while (finding := finding_in(text[clean : clean + SCAN_WINDOW])) is None and clean + SCAN_WINDOW <= len(text):
        clean += SCAN_OVERLAP
    return clean, finding


# Lists a write of a document as an entry ``memory.updated`` with the sequence and id of the write.


UPDATED: Final = "memory.updated"
_DONE: Final = {
    DocumentAction.REPLACE: "written",
    DocumentAction.APPEND: "appended",
    DocumentAction.RESTORE: "restored",
}


def updated_entry(write: DocumentWritten) -> EntryRecorded:
    """The entry of a write: owner of the document, kind and size of the change. It belongs to the owner's agent or crew."""
    scope, name = scope_of(write.owner)
    content = write.content.encode()
    payload = {
        "tier": write.tier,
        "key": write.key,
        "owner": write.owner,
        "action": write.action,
        "source": write.source,
        "bytes": len(content),
        "sha256": sha256_of(write.content),
    }
    entry = JournalEntry(
        id=write.write_id,
        workspace_id=write.workspace_id,
        crew_id=name if scope is Scope.CREW else None,
        agent_id=name if scope is Scope.AGENT else None,
        ts=from_ms(write.published_ms),
        entry_type=UPDATED,
        actor_type=ActorType(write.actor_type),
        actor_id=write.actor_id,
        summary=_summary(write, len(content)),
        payload=payload,
        data_subject_id=write.data_subject_id,
    )
    return EntryRecorded(write.seq, entry, write.published_ms, False, b"", b"", write.published_ms, len(content))


def _summary(write: DocumentWritten, size: int) -> str:
    """``AGENT.md of agent support: 42 bytes appended (api)``."""
    rule = TIERS.get(write.tier)
    label = rule.label_of(write.key) if rule is not None else "/".join(filter(None, (write.tier, write.key)))
    scope, name = scope_of(write.owner)
    owner = "the workspace" if scope is Scope.WORKSPACE else f"{scope} {name}"
    done = _DONE.get(DocumentAction(write.action))
    return f"{label} of {owner}: {'retracted' if done is None else f'{size} bytes {done}'} ({write.source})"


# The topic ``pins`` of a crew: its entries that operators pinned, one line each.


PINS_TOPIC: Final = "pins"
"""Key of the topic that is rendered unless a text is written under it."""
MAX_PINS: Final = 500
"""Maximum number of pinned entries in the text; the newest count."""


@dataclass(frozen=True, slots=True)
class PinnedEntry:
    """An entry with the priority ``pin`` or ``permanent``."""

    entry_id: str
    ts_ms: int
    summary: str


def pins_text(pins: Sequence[PinnedEntry], *, whole: bool) -> str:
    """The text of the pins, in the given order.

    Args:
        pins: The entries.
        whole: Whether text that the scanners block is shown; else a notice replaces it.
    """
    return "".join(f"- {day_of(pin.ts_ms)} {_safe(pin, whole)} ({pin.entry_id})\n" for pin in pins)


def _safe(pin: PinnedEntry, whole: bool) -> str:
    finding = None if whole else injection_finding_in(pin.summary)
    return one_line(pin.summary) if finding is None else notice_of(pin.entry_id, finding)


# The effect of commands on the text of memory files, and their answers.
#
# Invariant: messages and line numbers are exactly those of Anthropic's memory tool
# (``anthropic/lib/tools/_beta_builtin_memory_tool.py``); models are trained on them. One thing differs: the size of a
# folder is the sum of its files.


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


# Cuts a document into chunks for search (contract §16).
#
# Invariant: every line of the text that is not blank is in exactly one chunk, in order; no chunk is larger than
# ``CHUNK_CHARS_MAX``; line numbers are those of the document.


CHUNK_CHARS: Final = 500
"""Maximum length, in characters, of a section that is one chunk, and of a chunk of several paragraphs."""
CHUNK_CHARS_MAX: Final = 1_000
"""Maximum number of characters of a chunk: a longer line is cut."""
HEADING_LEVELS: Final = 6
"""Maximum number of number signs of a heading."""
TITLE_CHARS_MAX: Final = 120
"""Maximum number of characters of a heading in a breadcrumb, which every chunk below it repeats."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document.

    Attributes:
        text: The lines of the piece, headings included.
        breadcrumb: The headings above it, outermost first, joined by `` > ``; empty if absent.
        first_line: Number of its first line, from 1.
        last_line: Number of its last line.
    """

    text: str
    breadcrumb: str
    first_line: int
    last_line: int

    @property
    def indexed(self) -> str:
        """The text that is searched and embedded: breadcrumb and text."""
        return indexed_text(self.breadcrumb, self.text)


def indexed_text(breadcrumb: str, text: str) -> str:
    """The text of a chunk that is searched and embedded: breadcrumb and text."""
    return f"{breadcrumb}\n{text}" if breadcrumb else text


def chunks_of(text: str, first_line: int = 1) -> list[Chunk]:
    """The chunks of a document, in order; none for a blank text.

    Args:
        text: The document.
        first_line: Leave out the chunks before this line, at which a chunk of the text begins.
    """
    chunks: list[Chunk] = []
    for breadcrumb, lines in _sections(text, first_line):
        chunks += _packed(breadcrumb, lines)
    return chunks


def stable_chunks(spans: Sequence[tuple[int, int]]) -> int:
    """Number of leading chunks that later appends to the document do not change.

    An append may change only the last two chunks: when a last paragraph grows beyond ``CHUNK_CHARS``, it is cut into
    lines, and the first line may fit into the previous chunk. The changeable rest begins at the start of a line, so
    that a line that was cut into pieces belongs to it completely.

    Args:
        spans: First and last line of each chunk.
    """
    stable = max(len(spans) - 2, 0)
    while stable and spans[stable][0] == spans[stable - 1][1]:
        stable -= 1
    return stable


_Line = tuple[int, str]


def _sections(text: str, first_line: int) -> Iterator[tuple[str, list[_Line]]]:
    path: list[tuple[int, str]] = []
    lines: list[_Line] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line[:1] == "#" and (heading := _heading(line)) is not None:
            yield " > ".join(title for _, title in path), lines
            path = [*(level for level in path if level[0] < heading[0]), heading]
            lines = []
        if number >= first_line:
            lines.append((number, line))
    yield " > ".join(title for _, title in path), lines


def _heading(line: str) -> tuple[int, str] | None:
    """Level and title of a line; without a regular expression, because that takes quadratic time for a line of blanks."""
    rest = line.lstrip("#")
    level = len(line) - len(rest)
    title = rest.strip()
    if level > HEADING_LEVELS or not rest[:1].isspace() or not title:
        return None
    return level, title[:TITLE_CHARS_MAX]


def _packed(breadcrumb: str, lines: list[_Line]) -> Iterator[Chunk]:
    chunk_lines: list[_Line] = []
    size = 0
    for block in _blocks(lines):
        length = sum(len(line) + 1 for _, line in block)
        if chunk_lines and size + length > CHUNK_CHARS:
            yield _chunk(breadcrumb, chunk_lines)
            chunk_lines, size = [], 0
        chunk_lines += block
        size += length
    if chunk_lines:
        yield _chunk(breadcrumb, chunk_lines)


def _blocks(lines: list[_Line]) -> Iterator[list[_Line]]:
    """Paragraphs; a paragraph that is too long for a chunk is divided into lines, a line that is too long into pieces."""
    paragraph: list[_Line] = []
    for line in [*lines, (0, "")]:
        if line[1].strip():
            paragraph.append(line)
            continue
        if sum(len(text) + 1 for _, text in paragraph) <= CHUNK_CHARS:
            if paragraph:
                yield paragraph
        else:
            for number, text in paragraph:
                for start in range(0, len(text), CHUNK_CHARS_MAX - 1):
                    yield [(number, text[start : start + CHUNK_CHARS_MAX - 1])]
        paragraph = []


def _chunk(breadcrumb: str, lines: list[_Line]) -> Chunk:
    return Chunk("\n".join(text for _, text in lines), breadcrumb, lines[0][0], lines[-1][0])
