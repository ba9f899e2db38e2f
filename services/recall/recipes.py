"""Named ways to rank: each a declarative value with its evidence beside it.

Invariant: a recipe holds every constant of its ranking, so an answer that names its recipe can be reproduced. The
constants were chosen on three conversations, on flat plateaus; none depends on a data set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Final

from ...schemas.core.errors import InvalidQuery
from ...schemas.recall.questions import QueryKind


class Fusion(StrEnum):
    """How the arms become one list."""

    LEXICAL = "lexical"
    DENSE = "dense"
    RECIPROCAL_RANK = "reciprocal_rank"
    Z_SCORE = "z_score"
    CONVERSATION = "conversation"


@dataclass(frozen=True, slots=True)
class Interaction:
    """Constants of one way to let the tokens of a query and of an entry interact (``services.recall.late``).

    Attributes:
        near: Taken off what the turn before says.
        far: Taken off what the turn before that says.
        length: Taken off per natural logarithm of the entry's tokens.
        even: How much an entry loses that answers some of the query's words and not others; 0 is the plain mean.
    """

    near: float
    far: float
    length: float
    even: float = 0.0


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


BY_PIECES: Final = Interaction(near=0.15, far=0.25, length=0.03)
IN_CONTEXT: Final = Interaction(near=0.06, far=0.11, length=0.015, even=2.0)
"""Constants of late interaction (facts/conversational-recall.md); ``even`` stands on a plateau from 1 to 4, and by pieces it
gains nothing (docs/conversational.md)."""


@dataclass(frozen=True, slots=True)
class ConversationWeights:
    """The weights of a turn's score in the recipe for conversations (facts/conversational-recall.md), in units of z.

    Attributes:
        in_context: Whether late interaction uses the tokens of entries in context where there are any; else it goes by
            their word pieces alone.
        base_lexical, base_dense, base_late: Weights of the arms in what neighbours and sessions lend each other.
        lexical, dense, late: Weights of the arms in the score.
        previous, following: Weights of what the previous and next turn have.
        answer: Added to ``previous`` if the previous turn ends with a question.
        session: Weight of the session's best.
        session_previous: What the previous turn adds to one before the session's best is taken.
        speaker: The query names exactly one speaker, and it is this turn's.
        user: The query speaks in the first person, and the turn is the user's.
        assistant: The query asks what the assistant said, and the turn is the assistant's; instead of ``user``.
        day: The turn was said in the month or year the query names, or on the day it names or soon after.
        day_after: Days after a named day that still count for ``day``.
        interval: The turn names days that overlap those of the query.
        first_person: The turn speaks in the first person.
        question: The turn is short and ends with a question.
        instruction: The turn is the user's and states a standing instruction or preference, and the query does not ask about
            the past.
        max_words: A turn of at most so many words is short; neighbours lend only to short ones.
        missing_late, missing_lexical: What stands for the dense arm where a turn has no vector: so much of the late and
            of the lexical z.
        static: Constants of late interaction by word pieces.
        context: Constants of late interaction in context.
        idf_power: Weight of a query's piece or token is its word's idf to this power.
        late_static: Where a turn has tokens in context, so much of its late z is that by word pieces.
        alone_turns: Where the other arms find fewer than the hits wanted, so many of the newest turns are compared by
            their word pieces alone; 256 of 40 words take 1 ms of CPU.
        alone_floor: The least value by word pieces that brings such a turn up (docs/conversational.md).
    """

    in_context: bool
    lexical: float
    dense: float
    late: float
    base_lexical: float = 0.2
    base_dense: float = 0.2
    base_late: float = 0.6
    previous: float = 0.05
    following: float = 0.25
    answer: float = 0.25
    session: float = 0.3
    session_previous: float = 0.2
    speaker: float = 1.5
    user: float = 1.3
    assistant: float = 0.65
    day: float = 3.0
    day_after: int = 10
    interval: float = 0.75
    first_person: float = 0.7
    question: float = -0.25
    instruction: float = 2.0
    max_words: int = 60
    missing_late: float = 0.5
    missing_lexical: float = 0.5
    static: Interaction = BY_PIECES
    context: Interaction = IN_CONTEXT
    idf_power: float = 0.5
    late_static: float = 0.4
    alone_turns: int = 256
    alone_floor: float = 0.25


@dataclass(frozen=True)  # no slots: how it ranks for statements and quotations is computed once
class Recipe:
    """One way to rank.

    Attributes:
        name: What requests call it.
        fusion: How the arms are joined.
        lane_min: Least length of each arm's list.
        lane_factor: Each list is at least this many times k long.
        rank_constant: k of reciprocal rank fusion.
        dense_weight: Weight of the dense arm in z-score fusion; the lexical arm has the rest.
        covered: Share of the query's weight in words from which the lexical arm has its full weight: below it, the best text
            shares little more than a stray word with the query. 0 for full weight always.
        in_period: How many entries each arm adds from the periods that the query names.
        rules: Rules about sessions and speakers, None for none.
        turns: How turns of conversation are ranked among themselves, None if like everything else.
        evidence: What was measured.
    """

    name: str
    fusion: Fusion
    lane_min: int
    lane_factor: int
    rank_constant: int = 0
    dense_weight: float = 0.0
    rules: ConversationRules | None = None
    turns: ConversationWeights | None = None
    covered: float = 0.0
    in_period: int = 0
    evidence: str = ""

    @property
    def needs_vectors(self) -> bool:
        """Whether nothing can be found without a query vector."""
        return self.fusion is Fusion.DENSE

    @property
    def uses_vectors(self) -> bool:
        """Whether the dense arm takes part."""
        return self.fusion is not Fusion.LEXICAL

    def for_query(self, kind: QueryKind, terms: int, *, unread: bool = False, sums_up: bool = False) -> Recipe:
        """How it ranks for a query.

        Args:
            kind: Whether it asks, states or quotes.
            terms: How many of its words count.
            unread: Whether the model of the vectors does not know the language, so that meaning is hardly compared.
            sums_up: Whether it asks for a summary.
        """
        if self.rules is None:
            return self
        if unread:
            return self._for_unread
        fitted = (
            self if kind is QueryKind.ASKS else self.for_statements if kind is QueryKind.STATES else self.for_quotations
        )
        turns = fitted.turns
        if turns is not None and sums_up:
            turns = replace(turns, **SUMMED)  # type: ignore[arg-type]  # all floats
            fitted = replace(fitted, turns=turns)
        if turns is None or terms <= LONG_FROM or kind is QueryKind.QUOTES:
            return fitted
        words = LONG_WORDS * min(1.0, (terms - LONG_FROM) / LONG_SPAN) if kind is QueryKind.ASKS else 0.0
        session = LONG_SESSION * min(1.0, max(0.0, terms - TOPIC_FROM) / TOPIC_SPAN)
        return replace(fitted, turns=replace(turns, lexical=turns.lexical + words, session=turns.session + session))

    @cached_property
    def for_statements(self) -> Recipe:
        """How it ranks for a query that states something."""
        if self.rules is None:
            return self
        turns = self.turns and replace(self.turns, **STATED)  # type: ignore[arg-type]  # all floats
        rules = replace(self.rules, previous=0.0, session=0.1)
        return replace(self, dense_weight=STATED_DENSE, rules=rules, turns=turns)

    @cached_property
    def for_quotations(self) -> Recipe:
        """How it ranks for a statement that quotes somebody."""
        if self.rules is None:
            return self
        return replace(self, turns=self.turns and replace(self.turns, **QUOTED))  # type: ignore[arg-type]  # all floats

    @cached_property
    def _for_unread(self) -> Recipe:
        turns = self.turns and replace(self.turns, **UNREAD)  # type: ignore[arg-type]  # all floats
        return replace(self, dense_weight=UNREAD_DENSE, covered=0.0, turns=turns)

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
    covered=0.4,
    in_period=50,
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

CONVERSATIONAL: Final = replace(
    ROBUST,
    name="conversational",
    fusion=Fusion.CONVERSATION,
    turns=ConversationWeights(in_context=True, lexical=0.1, dense=0.4, late=0.5),
    evidence="docs/conversational.md. Constants of facts/conversational-recall.md, chosen on three conversations and ten "
    "chats of long messages, scored once on others: recall@10 +.075 [.061, .093] and +.083 [.054, .110] over robust; "
    "since then, on the three conversations, .854 to .875 by idf weights, a soft minimum and pieces beside context.",
)

CONVERSATIONAL_STATIC: Final = replace(
    CONVERSATIONAL,
    name="conversational-static",
    turns=ConversationWeights(in_context=False, lexical=0.1, dense=0.5, late=0.4),
    evidence="docs/conversational.md: the same without tokens in context, for entries and models that have none.",
)

STATED: Final[dict[str, float]] = {
    "lexical": 0.05, "dense": 1.2, "late": 0.3, "previous": 0.0, "following": 0.15, "answer": 0.1, "session": 0.15,
    "user": 0.3, "first_person": 0.0, "idf_power": 0.75,
}  # fmt: skip
"""Weights of turns for a statement: meaning counts, words and neighbours hardly do. 30 statements of our own that share no
word with the turn they should recall, among 600 turns: MRR .223 → .33, recall@10 .37 → .47 (docs/conversational.md)."""
QUOTED: Final[dict[str, float]] = {"previous": 0.15, "following": 0.3, "first_person": 0.0, "idf_power": 1.0}
"""The same for a situation that quotes speech: rare words and neighbouring lines count more. 60 situations,
recall@10 .544 → .61; without the share of turns in the first person +.026 (docs/adr/0025)."""
LONG_FROM: Final = 6
LONG_SPAN: Final = 8
LONG_WORDS: Final = 0.2
"""Each word of a long question tells texts apart: from ``LONG_FROM`` words on, over ``LONG_SPAN`` words, the lexical arm
gains up to ``LONG_WORDS`` (docs/adr/0025)."""
TOPIC_FROM: Final = 12
TOPIC_SPAN: Final = 12
LONG_SESSION: Final = 1.2
"""A long request belongs to one piece of work, so its sessions count more, likewise (docs/adr/0025)."""
SUMMED: Final[dict[str, float]] = {"user": 0.0, "first_person": 0.0, "question": 0.0, "instruction": 0.0}
"""Weights of turns for a summary: it is about both sides of a conversation, whoever asks (docs/adr/0025)."""
ENGLISH_MODELS: Final = frozenset({"all-MiniLM-L6-v2", "nomic-embed-text"})
"""Embedding models that know English alone; word pieces are compared by MiniLM throughout."""
UNREAD: Final[dict[str, float]] = {
    "lexical": 0.8, "dense": 0.05, "late": 0.15, "base_lexical": 0.8, "base_dense": 0.05, "base_late": 0.15
}  # fmt: skip
"""Weights of turns for a query in a script that the model does not know (docs/adr/0025)."""
UNREAD_DENSE: Final = 0.1
"""Weight of the dense arm in z-score fusion, likewise."""
STATED_DENSE: Final = 0.75
"""Weight of the dense arm for a statement in z-score fusion."""


def knows_script(model: str | None, *, unspaced: bool) -> bool:
    """Whether an embedding model knows the script of a query, so that its cosines say anything."""
    return not unspaced or (model is not None and model not in ENGLISH_MODELS)


RECIPES: Final[dict[str, Recipe]] = {
    recipe.name: recipe for recipe in (RRF, ROBUST, CONVERSATIONAL, CONVERSATIONAL_STATIC, DENSE, LEXICAL)
}
DEFAULT_RECIPE: Final = ROBUST.name


def default_recipe(turns: int) -> Recipe:
    """The default recipe: ``conversational`` if turns of a conversation are in scope, else ``robust``.

    Args:
        turns: How many are in scope.
    """
    return CONVERSATIONAL if turns else ROBUST


def recipe_named(name: str | None) -> Recipe:
    """The recipe of this name; ``robust`` for None.

    Raises:
        InvalidQuery: If there is none.
    """
    try:
        return RECIPES[name or DEFAULT_RECIPE]
    except KeyError:
        known = ", ".join(sorted(RECIPES))
        raise InvalidQuery("recipe is not known", hint=f"recipe: use one of {known}", field="recipe") from None


# How texts other than entries are ranked: chunks of documents, drawers, facts.


class TextFusion(StrEnum):
    """How the arms become one list."""

    RECIPROCAL_RANK = "reciprocal_rank"
    """Sum of reciprocal ranks; a text without a vector counts in the dense arm as in the lexical one."""
    SHARES = "shares"
    """Sum of the arms' scores as shares of the best one; a text without a vector counts likewise."""
    NEAREST = "nearest"
    """The dense arm; without a query vector the lexical one."""
    HIGHER = "higher"
    """The higher of cosine and BM25, the latter as a share of what a text could reach that is all the query."""


@dataclass(frozen=True, slots=True)
class TextRecipe:
    """One way to rank texts.

    Except by ``NEAREST``, a text that shares no word with the query is a hit if its cosine reaches the model's floor.

    Attributes:
        name: What it is called.
        fusion: How the arms are joined.
        depth: Least length of each arm's list.
        rank_constant: k of reciprocal rank fusion.
        follows: Share of the difference to the text before it that a text gains, if that one scores higher.
        evidence: What was measured.
    """

    name: str
    fusion: TextFusion
    depth: int = 0
    rank_constant: int = 0
    follows: float = 0.0
    evidence: str = ""


DOCUMENTS: Final = TextRecipe(
    name="documents",
    fusion=TextFusion.RECIPROCAL_RANK,
    depth=20,
    rank_constant=60,
    evidence="Seed 1: k = 60. Lists of 20 of each arm: full lists are worse than the better arm alone, recall@10 .698 "
    "against .627 (facts/retrieval.md).",
)
PALACE: Final = TextRecipe(
    name="palace",
    fusion=TextFusion.SHARES,
    follows=0.3,
    evidence="Questions about drawers (bench palace): recall .814; with a share of .2 to .4 of the difference to the drawer "
    "before, between .802 and .818.",
)
PALACE_SEED: Final = TextRecipe(
    name="palace-seed",
    fusion=TextFusion.NEAREST,
    evidence="Seed 2: the nearest drawers are candidates, which importance, recency and similarity rank.",
)
FACTS: Final = TextRecipe(
    name="facts",
    fusion=TextFusion.HIGHER,
    evidence="A similarity from 0 to 1 as salience needs it: that of words and that of meaning are not added.",
)
SIMILAR: Final = TextRecipe(
    name="similar", fusion=TextFusion.NEAREST, evidence="Cosine alone: how alike two texts are."
)
