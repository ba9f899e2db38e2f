"""Decides which entries are embedded (contract §2, with a choice for speech), and which text of them (contract §3).

Invariant: a pure function of version, choice, type, severity, payload and refs. A changed policy is a new
``VERSION``, which applies to a workspace only from an explicit reindex on. A workspace chooses whether speech (``chat.*``)
is embedded; the choice is separate from the policy and does not change its version. Without a choice, the version decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

VERSION: Final = 3

REMEMBERED: Final = "memory.remembered"
"""Notes that an agent makes on purpose. Version 2 adds this type to the eight types of contract §2."""
ALWAYS: Final = frozenset(
    {
        "peer.escalation",
        "summary.generated",
        "memory.consolidated",
        "approval.denied",
        "eval.regression_detected",
        REMEMBERED,
    }
)
CHAT: Final = "chat."
"""Prefix of the turns of chats: from hooks, imports, tools of MCP and clients."""
POSTED: Final = "message.posted"
"""Messages of people in a channel, from an import of Slack."""
SPEECH: Final = (CHAT, POSTED)
"""Speech as version 3 knows it: types, and prefixes that end in a dot. Contract §2 selects none of it; it is what people ask
for, and by its words alone a question in other words does not find it."""
WHEN_SEVERE: Final = frozenset({"keeper.decision", "mission.status_change"})
SEVERE: Final = frozenset({"warn", "error"})
WHEN_FLAGGED: Final = "peer.conversation"
EMBEDDABLE: Final = ALWAYS | WHEN_SEVERE | {WHEN_FLAGGED}
"""The types that can be embedded; ``refs.episodic`` has an effect on these only."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One version of the policy.

    Attributes:
        types: The types that can be embedded; ``refs.episodic`` has an effect on these only.
        judge: Pure function of (type, severity, payload, refs): whether an entry of these types is embedded.
        speech: Types, and prefixes that end in a dot, for which the choice of the workspace decides.
        embeds_speech: What counts for them if the workspace made no choice.
    """

    types: frozenset[str]
    judge: Callable[[str, str, Mapping[str, Any], Mapping[str, Any]], bool]
    speech: tuple[str, ...] = (CHAT,)
    embeds_speech: bool = False

    def is_speech(self, entry_type: str) -> bool:
        """Whether the choice of the workspace decides about a type."""
        return any(
            entry_type.startswith(speech_type) if speech_type.endswith(".") else entry_type == speech_type
            for speech_type in self.speech
        )


def _judge(entry_type: str, severity: str, payload: Mapping[str, Any], refs: Mapping[str, Any]) -> bool:
    """Contract §2."""
    if entry_type in ALWAYS or refs.get("episodic") is True:
        return True
    if entry_type in WHEN_SEVERE:
        return severity in SEVERE
    return payload.get("state") == "escalated"


POLICIES: Final[dict[int, Policy]] = {
    1: Policy(EMBEDDABLE - {REMEMBERED}, _judge),
    2: Policy(EMBEDDABLE, _judge),
    3: Policy(EMBEDDABLE, _judge, SPEECH, embeds_speech=True),
}
"""Every version of the policy. A workspace uses one of them; only a reindex changes which."""
FIRST: Final = 3
"""Used in a workspace until its first reindex. It treats the types of earlier versions as they do, except speech."""


def is_speech(entry_type: str) -> bool:
    """Whether entries of a type are speech in the current version."""
    return POLICIES[VERSION].is_speech(entry_type)


def embeds_speech(version: int, choice: bool | None) -> bool:
    """Whether a workspace embeds speech.

    Args:
        version: The version of the policy that it uses.
        choice: What it chose, None if it made no choice.
    """
    return POLICIES[version].embeds_speech if choice is None else choice


def is_embedded(
    entry_type: str,
    severity: str,
    payload: Mapping[str, Any],
    refs: Mapping[str, Any],
    version: int = VERSION,
    *,
    choice: bool | None = None,
) -> bool:
    """Whether an entry is embedded.

    Args:
        entry_type: Its type.
        severity: info, notice, warn or error.
        payload: Its payload; a conversation is embedded if ``state`` is ``"escalated"``.
        refs: Its refs; ``episodic`` counts only if it is the boolean true, and only for types that can be embedded.
        version: Version of the policy.
        choice: Whether the workspace chose that speech is embedded or is not; None if it made no choice.
    """
    policy = POLICIES[version]
    if policy.is_speech(entry_type):
        return embeds_speech(version, choice)
    return entry_type in policy.types and policy.judge(entry_type, severity, payload, refs)


# The text of an entry that is embedded, and its maximum length (contract §3).


SEPARATOR: Final = " :: "
PAYLOAD_FIELDS: Final = ("question", "reason")
"""Fields of the payload that are appended, in this order."""
CONVERSATION: Final = "conversation"
"""Field of a turn's payload: an object about the conversation; ``title`` is the name that people gave it, or its first
message in a thread. An import of Slack adds ``channel`` and ``topic``, which only the search by words reads."""
TITLE: Final = "title"
TITLE_CHARS: Final = 200
"""Characters of a title: longer than the titles that programs give, and less than a tenth of a turn's longest summary."""


def embedded_text(summary: str, payload: Mapping[str, object], entry_type: str = "") -> str:
    """The summary, then ``question`` and ``reason`` of the payload if they are non-empty strings.

    The title of its conversation, if there is one, precedes the summary of speech.

    Args:
        summary: The entry's summary.
        payload: The entry's payload; other fields and other types are left out.
        entry_type: The entry's type. A remembered text is embedded whole, because its summary may be cut.

    Returns:
        The parts joined by ``" :: "``; not capped.
    """
    full_text = payload.get("text") if entry_type == REMEMBERED else None
    parts = [full_text if isinstance(full_text, str) and full_text else summary]
    if is_speech(entry_type) and (title := title_of(payload)):
        parts.insert(0, title)
    for field in PAYLOAD_FIELDS:
        value = payload.get(field)
        if isinstance(value, str) and value:
            parts.append(value)
    return SEPARATOR.join(parts)


def title_of(payload: Mapping[str, object]) -> str:
    """The title of the conversation of a turn, empty if it has none."""
    about = payload.get(CONVERSATION)
    title = about.get(TITLE) if isinstance(about, Mapping) else None
    return title[:TITLE_CHARS] if isinstance(title, str) else ""


def cap_bytes(text: str, limit: int) -> str:
    """The longest prefix of `text` with at most `limit` bytes of UTF-8, cut between characters.

    Args:
        text: Any text; a lone surrogate becomes a question mark.
        limit: Bytes, at least 0.
    """
    # A character has at least one byte, so nothing beyond `limit` characters can be kept.
    data = text[:limit].encode("utf-8", errors="replace")
    return data[:limit].decode("utf-8", errors="ignore")
