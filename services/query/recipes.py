"""Named ways to rank: each a declarative value with its evidence beside it.

Invariant: a recipe holds every constant of its ranking, so an answer that names its recipe can be reproduced. The
constants were chosen on three conversations and are kept where the plateau is flat; nothing here knows a data set.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from crew_journal.schemas.errors import InvalidQuery


class Fusion(StrEnum):
    """How the arms become one list."""

    LEXICAL = "lexical"
    DENSE = "dense"
    RECIPROCAL_RANK = "reciprocal_rank"
    Z_SCORE = "z_score"


@dataclass(frozen=True, slots=True)
class ConversationRules:
    """What the neighbourhood of a turn adds to its score, in units of z.

    Attributes:
        previous: Weight of the previous entry of the session.
        following: Weight of the next one.
        max_words: Neighbours count only for entries of at most this many words.
        session: Weight of the mean of the session's best scores.
        session_best: How many scores that mean takes.
        speaker: Added if the query names exactly one speaker and it is the entry's.
    """

    previous: float
    following: float
    max_words: int
    session: float
    session_best: int
    speaker: float


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to rank.

    Attributes:
        name: What requests call it.
        fusion: How the arms are joined.
        lane_min: Least length of each arm's list.
        lane_factor: Each list is at least this many times k long.
        rank_constant: k of reciprocal rank fusion.
        dense_weight: Weight of the dense arm in z-score fusion; the lexical arm has the rest.
        rules: Rules about sessions and speakers, None for none.
        evidence: What was measured.
    """

    name: str
    fusion: Fusion
    lane_min: int
    lane_factor: int
    rank_constant: int = 0
    dense_weight: float = 0.0
    rules: ConversationRules | None = None
    evidence: str = ""

    @property
    def needs_vectors(self) -> bool:
        """Whether nothing can be found without a query vector."""
        return self.fusion is Fusion.DENSE

    @property
    def uses_vectors(self) -> bool:
        """Whether the dense arm takes part."""
        return self.fusion is not Fusion.LEXICAL

    def depth(self, k: int) -> int:
        """Length of each arm's list for the best ``k``: grows with k, is never reset (contract §5)."""
        return max(self.lane_min, self.lane_factor * k)


RRF: Final = Recipe(
    name="rrf",
    fusion=Fusion.RECIPROCAL_RANK,
    lane_min=20,
    lane_factor=3,
    rank_constant=60,
    evidence="Seed 1: k = 60, equal legs, lanes of max(20, 3k). Development conversations, recall@10: .656 with lanes of "
    "30, .694 with lanes of 20; over full lists .627, worse than its better leg.",
)

ROBUST: Final = Recipe(
    name="robust",
    fusion=Fusion.Z_SCORE,
    lane_min=100,
    lane_factor=2,
    dense_weight=0.6,
    rules=ConversationRules(previous=0.3, following=0.1, max_words=60, session=0.4, session_best=3, speaker=1.0),
    evidence="Development conversations: turn recall@10 .815, session recall@5 .888 (z-score fusion alone .709). Each "
    "rule removed costs, recall@10: neighbours .035, speaker .026, session .014; without the gate of 60 words chats "
    "of long messages get worse.",
)

DENSE: Final = Recipe(
    name="dense",
    fusion=Fusion.DENSE,
    lane_min=1,
    lane_factor=1,
    evidence="Seed 1's Recall: sorted by cosine times importance, the score is the cosine. recall@10 .496.",
)

LEXICAL: Final = Recipe(
    name="lexical",
    fusion=Fusion.LEXICAL,
    lane_min=1,
    lane_factor=1,
    evidence="BM25 alone: recall@10 .644.",
)

RECIPES: Final[dict[str, Recipe]] = {recipe.name: recipe for recipe in (RRF, ROBUST, DENSE, LEXICAL)}
DEFAULT_RECIPE: Final = ROBUST.name


def recipe_named(name: str | None) -> Recipe:
    """The recipe of this name; ``robust`` for None.

    Raises:
        InvalidQuery: If there is none.
    """
    try:
        return RECIPES[name or DEFAULT_RECIPE]
    except KeyError:
        known = ", ".join(sorted(RECIPES))
        raise InvalidQuery("recipe is not known", hint=f"use one of {known}", field="recipe") from None
