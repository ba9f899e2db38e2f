"""A line of ``queries.jsonl``: what is asked, in whose memory, and which entries answer it.

Invariant: nothing is made up of what a line does not say: a value of another type is refused, never turned into text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Question:
    """A line of ``queries.jsonl``.

    Attributes:
        qid: Its id.
        agent_id: Whose memory is asked, in scope own.
        workspace_id: Where the entries that answer it are.
        category: Its kind.
        query: The text.
        relevant_ids: Entries that answer it.
        asked_at: When it is asked, for "last week" (RFC 3339); "unknown" if it does not say, so that figures are the
            same whenever they are measured.
    """

    qid: str
    agent_id: str
    workspace_id: str | None
    category: str
    query: str
    relevant_ids: tuple[str, ...]
    asked_at: str = "unknown"


def read_question(number: int, raw: bytes) -> tuple[Question, str | None]:
    """A line, and the workspace it names with ``workspace_id``.

    Args:
        number: Its number, from 1; the first may begin with a byte order mark.
        raw: Its bytes.

    Raises:
        ValueError: Saying what is wrong with it.
    """
    from pydantic import ValidationError

    from ...schemas.body_problems import body_problems
    from ...schemas.ids import is_id, is_workspace
    from ...schemas.operations.recall import RecallRequest
    from ...schemas.timestamps import format_ts, parse_ts

    said = _object(number, raw)
    if missing := [name for name in ("agent_id", "query", "relevant_ids") if name not in said]:
        raise ValueError(f"{missing[0]} is missing")
    agent, query, relevant, home = said["agent_id"], said["query"], said["relevant_ids"], said.get("workspace_id")
    if not isinstance(agent, str) or not is_id(agent):
        raise ValueError("agent_id is not valid: use 1 to 64 letters, digits, - and _")
    if not isinstance(query, str):
        raise ValueError("query is not a string")
    if not isinstance(relevant, list):  # a string would be taken for ids of one letter
        raise ValueError("relevant_ids is not an array")
    if not all(isinstance(name, str) and name for name in relevant):
        raise ValueError("relevant_ids contains a value that is not an id")
    if home is not None and not (isinstance(home, str) and is_workspace(home)):
        raise ValueError("workspace_id is not the name of a workspace")
    try:
        RecallRequest(query=query)
    except ValidationError as error:
        first = body_problems(error, RecallRequest)[0]
        raise ValueError(f"{first.field}: {first.problem}") from None
    asked_at = said.get("asked_at")
    if asked_at is not None and not isinstance(asked_at, str):
        raise ValueError("asked_at is not a string")
    when = format_ts(parse_ts(asked_at)) if asked_at else "unknown"
    qid, category = _label(said, "qid", str(number)), _label(said, "category", "all")
    return Question(qid, agent, None, category, query, tuple(dict.fromkeys(relevant)), when), home


def _object(number: int, raw: bytes) -> dict[str, Any]:
    try:
        said = json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8: write the file as UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(said, dict):
        raise ValueError("it is not a JSON object")
    return said


def _label(said: Mapping[str, Any], name: str, otherwise: str) -> str:
    """A name that may be a number."""
    value = said.get(name)
    if value is None or value == "":
        return otherwise
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{name} is neither a string nor an integer")
    return str(value)
