"""What a render asks and answers.

Invariant: an answer holds nothing of an entry that the scanners have not passed: payload and refs, which nobody scanned,
are left out, and what was redacted in the text is redacted in the hits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from crew_journal.schemas.rules.render import DEFAULT_CHARS, MAX_CHARS
from crew_journal.services.query.requests import Degraded, Hit, RecallRequest, parse_request


class RenderRequest(RecallRequest):
    """A recall answered as text for a prompt; ``recipe`` left out is ``dense``, or the hybrid default without vectors."""

    max_chars: StrictInt | None = Field(
        default=None,
        description=f"Characters of the block, wrapper included; {DEFAULT_CHARS} if absent or not positive, "
        f"at most {MAX_CHARS}.",
    )


def parse_render(body: Mapping[str, Any]) -> RenderRequest:
    """A request from a JSON object.

    Raises:
        InvalidQuery: Naming the first offending field.
    """
    return parse_request(RenderRequest, body)


class Redaction(BaseModel):
    """Why something was replaced by a notice: whose rule, its category, its name."""

    model_config = ConfigDict(frozen=True)

    scanner: str
    category: str
    pattern: str


class RenderedHit(Hit):
    """One line of the text, with the metadata of its entry; ``summary`` is what the line shows, before escaping."""

    redaction: Redaction | None


class RenderResponse(BaseModel):
    """The answer.

    ``text`` is empty if nothing was found or nothing fits. ``hits`` are the lines of the text in their order, ``omitted``
    counts the hits that did not fit, ``redacted`` the lines of which something was replaced. ``recipe`` and ``degraded``
    tell whether the dense arm answered.
    """

    model_config = ConfigDict(frozen=True)

    text: str
    hits: list[RenderedHit]
    receipt: str
    omitted: int
    redacted: int
    recipe: str
    scope: str
    model: str | None
    degraded: Degraded | None
    view_seq: int
