"""The recipe for conversations: three arms, shares of neighbours and sessions, and features of a turn.

The formula and its evidence: facts/conversational-recall.md and docs/conversational.md; the constants are the recipe's.

Invariants: only turns of a conversation are ranked here. Turns only change places among themselves: every other entry keeps
exactly the rank that ``robust`` gives it, ties aside. Only rows in scope count, neighbours included, and the shares of a hit
sum up to its score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ...schemas.core.timestamps import DAY_MS
from ...schemas.recall.turns import FIRST_PERSON, INSTRUCTION, QUESTION, Question
from ...schemas.text.dates import Days
from ..index.arrays import ABSENT, Docs, union
from ..index.documents import REMEMBERED_TEXT, SPOKEN_BY_USER, USERS
from ..index.entry_index import HotIndex
from ..index.scoped import ScopedDocuments
from ..index.sessions import neighbours
from .fusion import neighbour_values, session_values, weighted_z, z_scores
from .late import Around, LateResult
from .recipes import ConversationRules, ConversationWeights, Recipe

# The features of candidates for a recipe's rules, read from the hot index.


NO_NEIGHBOUR: Final = -1
NOT_FOUND: Final = -2
"""There is a neighbour, but no arm found it."""


@dataclass(frozen=True, slots=True)
class Features:
    """Of m candidates.

    Attributes:
        previous: (m,) int64 index of the previous entry of the session among the candidates, or ``NO_NEIGHBOUR`` or
            ``NOT_FOUND``.
        following: (m,) likewise the next.
        session: (m,) int32 code of the session, negative for none.
        words: (m,) uint16 words of the entry.
        named: (m,) bool: the query names one speaker, and it is the entry's.
    """

    previous: npt.NDArray[np.int64]
    following: npt.NDArray[np.int64]
    session: npt.NDArray[np.int32]
    words: npt.NDArray[np.uint16]
    named: npt.NDArray[np.bool_]


def features_of(index: HotIndex, scoped: ScopedDocuments, speaker: int | None, docs: Docs) -> Features:
    """The features of candidates. Remembered texts have no neighbours and no session: those of one say different things.

    Args:
        index: The workspace's index.
        scoped: The rows in scope.
        speaker: Code of the speaker that the query names; None if it names none.
        docs: (m,) intp, ascending, in scope.
    """
    documents = index.documents
    previous, following = neighbours(index.order, documents, scoped.count, docs, scoped.mask)
    if speaker is None:
        named = np.zeros(len(docs), bool)
    else:
        by_user = (documents.flags[docs] & SPOKEN_BY_USER) != 0
        named = (documents.actor[docs] == speaker) & by_user
    before, after = place_among_candidates(docs, np.concatenate((previous, following))).reshape(2, -1)
    alone = (documents.flags[docs] & REMEMBERED_TEXT) != 0
    before[alone] = after[alone] = NO_NEIGHBOUR
    session = np.where(alone, np.int32(ABSENT), documents.session[docs])
    return Features(before, after, session, documents.words[docs], named)


def place_among_candidates(docs: Docs, wanted: Docs) -> npt.NDArray[np.int64]:
    """Index of each wanted document in the ascending ``docs``; ``NO_NEIGHBOUR`` if none is wanted, else ``NOT_FOUND``."""
    if not len(docs):
        return np.zeros(len(wanted), np.int64)
    place = docs.searchsorted(wanted)
    place[place == len(docs)] = 0
    place[docs[place] != wanted] = NOT_FOUND
    place[wanted == ABSENT] = NO_NEIGHBOUR
    return place


# The rules of `robust`, which add to fused scores: neighbours, sessions, speakers.


Floats = npt.NDArray[np.float64]


def rule_shares(fused: Floats, features: Features, rules: ConversationRules) -> dict[str, Floats]:
    """What the rules add to fused scores: ``previous``, ``next``, ``session``, ``speaker``, each (m,) float64.

    The session's mean is taken after the neighbours are added.
    """
    short = features.words <= rules.max_words
    previous = rules.previous * np.where(short, neighbour_values(fused, features.previous), 0.0)
    following = rules.following * np.where(short, neighbour_values(fused, features.following), 0.0)
    session = session_values(fused + previous + following, features.session, rules.session_best)
    return {
        "previous": previous,
        "next": following,
        "session": rules.session * session,
        "speaker": np.where(features.named, rules.speaker, 0.0),
    }


Mask = npt.NDArray[np.bool_]

OUTSIDE: float = -1.0
"""z of a neighbour that is not a candidate."""


@dataclass(frozen=True, slots=True)
class SeenCandidates:
    """The candidates.

    Attributes:
        docs: (m,) intp, ascending.
        found: (m,) bool: found by an arm, and not only as the turn after one that was.
        lexical_lane: Documents of the lexical arm's list.
        bm25: (m,) float32.
        dense: (m,) float32 cosine times importance; NaN without a vector.
    """

    docs: Docs
    found: Mask
    lexical_lane: Docs
    bm25: npt.NDArray[np.float32]
    dense: npt.NDArray[np.float32]

    def only(self, kept: Mask) -> SeenCandidates:
        """Some of them."""
        if kept.all():
            return self
        return SeenCandidates(self.docs[kept], self.found[kept], self.lexical_lane, self.bm25[kept], self.dense[kept])


def with_next_turns(index: HotIndex, scoped: ScopedDocuments, docs: Docs, max_words: int) -> tuple[Docs, Around]:
    """The candidates and, for each turn among them, the next turn of its session, as an answer follows its question.

    Args:
        index: The workspace's index.
        scoped: The rows in scope.
        docs: (m,) intp candidates, ascending.
        max_words: Words of the longest turn that uses the turns before it.

    Returns:
        The candidates, ascending, and the turns around those that are turns.
    """
    turns = docs[scoped.turns[docs]]
    previous, following = _turns_beside(index, scoped, turns)
    behind = following[following >= 0]
    beside = union(behind, previous[previous >= 0])
    around = _turns_beside(index, scoped, beside)
    every = union(turns, behind)
    known = np.concatenate((turns, beside))  # a turn that stands twice has the same neighbours both times
    order = np.argsort(known, kind="stable")
    known = known[order]
    before = np.concatenate((previous, around[0]))[order]
    after = np.concatenate((following, around[1]))[order]
    place = known.searchsorted(every)
    previous = before[place]
    before_that = before.take(known.searchsorted(previous), mode="clip")
    before_that[previous < 0] = ABSENT
    joined = docs if len(every) == len(turns) else union(docs, behind)
    words = index.documents.words
    short = words[every] <= max_words
    leans = short & (previous >= 0)
    leans &= words[previous] <= max_words
    leans_far = leans & (before_that >= 0)
    leans_far &= words[before_that] <= max_words
    return joined, Around(
        every,
        previous,
        place_among_candidates(every, previous),
        place_among_candidates(every, after[place]),
        np.where(leans, previous, ABSENT),
        np.where(leans_far, before_that, ABSENT),
        ~short,
    )


def _turns_beside(index: HotIndex, scoped: ScopedDocuments, turns: Docs) -> tuple[Docs, Docs]:
    mask = None if scoped.turn_count == scoped.count else scoped.turns
    whole = scoped.mask is None
    return neighbours(index.turn_order, index.documents, scoped.count, turns, mask, all_in_scope=whole)


def conversation_shares(
    index: HotIndex,
    scoped: ScopedDocuments,
    seen: SeenCandidates,
    around: Around,
    late: LateResult,
    question: Question,
    speaker: int | None,
    recipe: Recipe,
) -> dict[str, Floats]:
    """What each arm and rule adds to each candidate's score: name → (m,) float64.

    Args:
        index: The workspace's index.
        scoped: The rows in scope.
        seen: The candidates.
        around: The turns around those that are turns.
        late: The values of these by late interaction.
        question: What the query asks of turns.
        speaker: Code of the speaker that the query names; None if it names none.
        recipe: ``turns`` ranks turns among themselves, ``dense_weight`` and ``rules`` everything.
    """
    assert recipe.turns is not None
    is_turn = scoped.turns[seen.docs]
    of_turns: dict[str, Floats] = {}
    if is_turn.any():
        of_turns = _turn_shares(index, seen.only(is_turn), around, late, recipe.turns)
        of_turns |= _asked_shares(index, around.docs, question, speaker, recipe.turns)
    if is_turn.all():
        return of_turns
    found = seen.found
    lexical, dense = weighted_z(z_scores(seen.bm25[found]), z_scores(seen.dense[found]), recipe.dense_weight)
    as_ever = {"lexical": lexical, "dense": dense}
    if recipe.rules is not None:
        as_ever |= rule_shares(lexical + dense, features_of(index, scoped, speaker, seen.docs[found]), recipe.rules)
    return _in_their_places(found, is_turn, of_turns, as_ever)


def _in_their_places(
    mask: Mask, is_turn: Mask, of_turns: Mapping[str, Floats], as_ever: Mapping[str, Floats]
) -> dict[str, Floats]:
    """Everything as ``robust`` has it; the turns, in the order of their own scores, take the places they hold in it.

    ``place`` is what brings a turn's score to that of its place. Turns that no arm found stand behind all others.
    """
    count = len(mask)
    plain = np.empty(count)
    plain[mask] = sum(as_ever.values(), np.zeros(int(np.count_nonzero(mask))))
    plain[~mask] = plain[mask].min() - 1.0
    shares = {name: np.zeros(count) for name in (*as_ever, *of_turns)}
    others, of_found = (mask & ~is_turn).nonzero()[0], (~is_turn[mask]).nonzero()[0]
    for name, values in as_ever.items():
        shares[name][others] = values[of_found]
    if not of_turns:
        return shares
    turns = is_turn.nonzero()[0]
    for name, values in of_turns.items():
        shares[name][turns] = values
    own = sum(of_turns.values(), np.zeros(len(turns)))
    places = plain[turns]
    places.sort()
    placed = np.empty(len(own))
    placed[(-own).argsort(kind="stable")] = places[::-1]
    shares["place"] = np.zeros(count)
    shares["place"][turns] = placed - own
    return shares


def _turn_shares(
    index: HotIndex, seen: SeenCandidates, around: Around, of_late: LateResult, weights: ConversationWeights
) -> dict[str, Floats]:
    documents, docs = index.documents, seen.docs
    flags = index.turns.flags[docs]
    short = ~around.long
    lexical = _lexical_z(seen)
    dense, late = _arms(of_late.static, of_late.context, seen, lexical, weights)
    base = weights.base_lexical * lexical + weights.base_dense * dense + weights.base_late * late
    previous = np.where(short, _lent(base, around.previous_at), 0.0)
    following = np.where(short, _lent(base, around.following_at), 0.0)
    answers = np.zeros(len(docs), bool)
    has_previous = (around.previous >= 0) & short
    answers[has_previous] = (index.turns.flags[around.previous[has_previous]] & QUESTION) != 0
    lent = base + weights.session_previous * previous
    return {
        "lexical": weights.lexical * lexical,
        "dense": weights.dense * dense,
        "late": weights.late * late,
        "previous": weights.previous * previous,
        "next": weights.following * following,
        "answer": np.where(answers, weights.answer * previous, 0.0),
        "session": weights.session * _session_best(lent, documents.session[docs]),
        "first_person": np.where(flags & FIRST_PERSON, weights.first_person, 0.0),
        "question": np.where((flags & QUESTION).astype(bool) & short, weights.question, 0.0),
    }


def _asked_shares(
    index: HotIndex, docs: Docs, question: Question, speaker: int | None, weights: ConversationWeights
) -> dict[str, Floats]:
    """What a turn gets for being what the query asks for; only what the query asks at all."""
    documents, flags = index.documents, index.turns.flags[docs]
    users = (documents.flags[docs] & USERS) != 0
    shares: dict[str, Floats] = {}
    if speaker is not None:
        by_user = (documents.flags[docs] & SPOKEN_BY_USER) != 0
        shares["speaker"] = np.where((documents.actor[docs] == speaker) & by_user, weights.speaker, 0.0)
    if question.asks_assistant:
        shares["assistant"] = np.where(users, 0.0, weights.assistant)
    elif question.first_person:
        shares["user"] = np.where(users, weights.user, 0.0)
    if not question.asks_past and not question.days:
        shares["instruction"] = np.where(users & ((flags & INSTRUCTION) != 0), weights.instruction, 0.0)
    if question.days:
        own = documents.ts_ms[docs] // DAY_MS
        shares["day"] = np.where(_said_in(own, question.days, weights.day_after), weights.day, 0.0)
        shares["interval"] = np.where(_speaks_of(index, docs, question.days), weights.interval, 0.0)
    return shares


def _said_in(own: npt.NDArray[np.int64], days: tuple[Days, ...], day_after: int) -> Mask:
    is_said_in = np.zeros(len(own), bool)
    for named in days:
        last = named.last + day_after if named.length == 1 else named.last
        is_said_in |= (own >= named.first) & (own <= last)
    return is_said_in


def _speaks_of(index: HotIndex, docs: Docs, days: tuple[Days, ...]) -> Mask:
    """Whether a turn names days that overlap one of the query's."""
    gathered = index.turns.days.gather(docs)
    named = index.turns.days.values[gathered.at]
    overlaps = np.zeros(len(named), bool)
    for day in days:
        overlaps |= (named[:, 0] <= day.last) & (named[:, 1] >= day.first)
    speaks = np.zeros(len(docs), bool)
    speaks[np.repeat(np.arange(len(docs)), gathered.counts)[overlaps]] = True
    return speaks


def _lexical_z(seen: SeenCandidates) -> Floats:
    """BM25 as z; a candidate outside the lexical arm's list counts as its lowest, or 0 if all of them are equal."""
    place = seen.docs.searchsorted(seen.lexical_lane)
    place = place[seen.docs.take(place, mode="clip") == seen.lexical_lane]
    if not len(place):
        return np.zeros(len(seen.docs))
    listed = seen.bm25[place]
    lowest = np.minimum.reduce(listed)
    scores = np.full(len(seen.docs), lowest if lowest < np.maximum.reduce(listed) else 0.0)
    scores[place] = listed
    return z_scores(scores)


def _arms(
    static: Floats | None, context: Floats | None, seen: SeenCandidates, lexical: Floats, weights: ConversationWeights
) -> tuple[Floats, Floats]:
    """The dense arm and late interaction as z, with what stands for them where a turn lacks one."""
    dense = z_scores(seen.dense)
    missing = np.isnan(dense)
    late = None if static is None else _filled(z_scores(static))
    if late is not None:
        dense = np.where(missing, weights.missing_late * late + weights.missing_lexical * lexical, dense)
    else:
        dense = np.where(missing, lexical, dense)
    if context is not None and not np.isnan(context).all():
        late = _both_ways(late, z_scores(context), weights.late_static)
    if late is None:  # no table and no tokens: the other two arms, .4 and .6
        late = 0.4 * lexical + 0.6 * dense
    return dense, late


def _both_ways(static: Floats | None, in_context: Floats, share: float) -> Floats:
    """Late interaction by pieces and in context as one: their errors differ, so both together are better than either.

    A turn without tokens in context goes by its pieces alone, at full weight.
    """
    missing = np.isnan(in_context)
    if static is None:
        return np.where(missing, 0.0, in_context)
    return np.where(missing, static, (1.0 - share) * in_context + share * static)


def _filled(values: Floats) -> Floats:
    """A missing value counts as the lowest; 0 if all are missing."""
    unknown = np.isnan(values)
    if unknown.all():
        return np.zeros(len(values))
    return np.where(unknown, values[~unknown].min(), values) if unknown.any() else values


def _lent(base: Floats, at: npt.NDArray[np.int64]) -> Floats:
    values: Floats = np.concatenate((base, (OUTSIDE, 0.0)))[at]  # read from the end: -1 is 0, -2 a turn outside
    return values


def _session_best(scores: Floats, session: npt.NDArray[np.int32]) -> Floats:
    """Of each candidate's session the best score; 0 without a session."""
    order = np.argsort(session, kind="stable")
    ordered = session[order]
    begins = np.ones(len(order), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    best = np.maximum.reduceat(scores[order], begins.nonzero()[0])
    values = np.empty(len(scores))
    values[order] = np.where(ordered < 0, 0.0, best[begins.cumsum() - 1])
    return values
