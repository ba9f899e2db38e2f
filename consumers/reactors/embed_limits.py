"""Sizes and times of the embed reactor, and the name of its durable.

Invariant: a durable always belongs to one version of the reactor, one model and one filling of it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from ...schemas.settings import EMBED_BATCH
from ..feed.jetstream import EMBED_ACK_PENDING
from ..reacting.pull_reactor import PullLimits

MODEL_SLUG_CHARS: Final = 40
"""Characters of a model's name in its durable's name; a hash of the whole name follows."""
_NOT_SLUG: Final = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class EmbedLimits(PullLimits):
    """Sizes and times of the embed reactor; one call for several texts costs little more than for one.

    Attributes:
        batch: Texts of one call to the model.
        max_ack_pending: Unacked entries over all processes, those put off included: if more texts than this fail at
            once, the rest waits until the first are given up.
        retry_first_s: Seconds until a text that failed alone comes again; doubled with each delivery.
        retry_last_s: Seconds of the longest such delay.
        suspect_deliveries: Deliveries from which a text is asked for alone. A text without fault comes again only when
            the model or a process went away with it in hand, which is rarely twice.
        suspects_a_turn: Texts asked for alone between two batches; the others are put off once more.
        takes_a_turn: Full takes without anything new after which the pending suspects are tried.
        give_up_after: Failures of one text alone, seen by this process, before it is given up.
        give_up_refused_s: Seconds since the first of them, where the model refuses the text.
        give_up_broken_s: The same where the model breaks on it or gives no vector: that may be mended with the server.
    """

    batch: int = EMBED_BATCH
    max_ack_pending: int = EMBED_ACK_PENDING
    retry_first_s: float = 5.0
    retry_last_s: float = 600.0
    suspect_deliveries: int = 4
    suspects_a_turn: int = 4
    takes_a_turn: int = 32
    give_up_after: int = 5
    give_up_refused_s: float = 600.0
    give_up_broken_s: float = 86_400.0


def durable_name(version: int, model: str, generation: int = 0) -> str:
    """``embed-v<version>-<model>-<hash>``: names a model in characters that the broker allows (no dots and slashes).

    After a drop ``-<generation>`` follows, so that the model is filled from the journal's beginning once more.
    """
    return f"embed-v{version}-{model_slug(model)}" + (f"-{generation}" if generation else "")


def model_slug(model: str) -> str:
    """The model in a durable's name: a readable piece and a hash of the whole name."""
    slug = _NOT_SLUG.sub("-", model).strip("-")[:MODEL_SLUG_CHARS]
    return f"{slug}-{hashlib.blake2b(model.encode(), digest_size=4).hexdigest()}"
