"""A seeded journal of any size: Zipf words, a believable mix of types, sessions, agents and crews.

The words are English ones, most frequent first, and made-up ones for the rare ranks: 1.2 word pieces an indexed word,
as in the sample journal (1.20; the development conversations have 1.04). Late interaction costs by the word piece.

Invariant: entry ``n`` of a seed is always the same, whatever was asked for before; so a run can be repeated, and a test
can tell which text belongs to which id.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from crew_journal.schemas.text.analyzer import STOP_WORDS
from crew_journal.schemas.text.vocabulary import vocabulary

VOCABULARY: Final = 50_000
"""Different words; English conversation of 4 million words has about as many."""
ZIPF_EXPONENT: Final = 1.07
"""Of word frequencies in running text."""
SUMMARY_WORDS: Final = 16
WORDS: Final = 40
"""Words of an entry, summary and payload together."""
BLOCK: Final = 5_000
"""Entries whose words are drawn at once."""
AGENTS: Final = 12
CREWS: Final = 3
SESSION: Final = 40
"""Entries of one session (trace)."""
GAP_MS: Final = 1_500
START: Final = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
COMMON: Final = 200
"""The most frequent words; queries are of rarer ones, as questions are."""
RARE: Final = 12_000
"""Words beyond this rank are mostly seen once; queries are of more frequent ones."""

# share in percent, type, severity, actor; about what the sample journal and contract §2 suggest for a working crew
MIX: Final[Sequence[tuple[int, str, str, str]]] = (
    (14, "chat.user_message", "info", "user"),
    (14, "chat.agent_response", "info", "agent"),
    (16, "exec.command", "info", "sidecar"),
    (8, "exec.output_chunk", "info", "sidecar"),
    (10, "llm.call", "info", "system"),
    (8, "file.written", "info", "agent"),
    (5, "network.egress", "notice", "sidecar"),
    (5, "run.completed", "info", "system"),
    (6, "assignment.completed", "notice", "agent"),
    (4, "keeper.decision", "warn", "keeper"),
    (4, "peer.conversation", "info", "agent"),
    (2, "peer.escalation", "warn", "agent"),
    (2, "summary.generated", "info", "agent"),
    (1, "mission.status_change", "error", "orchestrator"),
    (1, "approval.denied", "warn", "user"),
)
TURN: Final = ("peer.conversation", "info", "agent")
EMBEDDED: Final = frozenset(
    {
        "approval.denied",
        "chat.agent_response",
        "chat.user_message",
        "keeper.decision",
        "mission.status_change",
        "peer.escalation",
        "summary.generated",
    }
)
"""Types of the mix that the embed policy takes, 38 % of all entries."""

SHORTEST: Final = 3
"""Letters of a word; shorter pieces are mostly letters and scraps."""
_ONSETS: Final = (
    "b",
    "br",
    "c",
    "d",
    "dr",
    "f",
    "g",
    "gr",
    "h",
    "k",
    "l",
    "m",
    "n",
    "p",
    "pl",
    "r",
    "s",
    "st",
    "t",
    "v",
)
_VOWELS: Final = ("a", "e", "i", "o", "u", "ea", "ou", "ia")
_CODAS: Final = ("", "l", "n", "r", "m", "t", "x", "nd", "sk")


def _vocabulary(seed: int) -> list[str]:
    """English words as BERT's vocabulary has them, about most frequent first, then made-up ones of several pieces."""
    rng = random.Random(seed)
    english = (piece for piece in vocabulary() if len(piece) >= SHORTEST and piece.isascii() and piece.isalpha())
    words = dict.fromkeys(word for word in english if word not in STOP_WORDS)
    while len(words) < VOCABULARY:
        syllables = rng.choices((2, 3), (1, 2))[0]
        words["".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables))] = None
    return list(words)


@dataclass(frozen=True)
class Corpus:
    """``entries`` submissions spread evenly over workspaces ``bench-00`` and so on.

    Attributes:
        entries: How many.
        workspaces: Over how many workspaces, entry ``n`` belonging to ``n % workspaces``.
        seed: Two corpora of one seed are equal.
        prefix: Begins every id, so that two corpora can share a journal.
        talk: Nothing but turns of conversations, in place of the mix.
    """

    entries: int
    workspaces: int = 1
    seed: int = 7
    prefix: str = "b"
    talk: bool = False
    _blocks: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def words(self) -> list[str]:
        """The vocabulary, most frequent first."""
        return _vocabulary(self.seed)

    @cached_property
    def _cumulative(self) -> npt.NDArray[np.float64]:
        weights = np.arange(1, VOCABULARY + 1, dtype=np.float64) ** -ZIPF_EXPONENT
        return np.cumsum(weights / weights.sum())

    @cached_property
    def _types(self) -> list[tuple[str, str, str]]:
        if self.talk:
            return [TURN]
        rng = random.Random(self.seed + 1)
        laid = [(kind, severity, actor) for share, kind, severity, actor in MIX for _ in range(share)]
        rng.shuffle(laid)
        return laid

    def workspace(self, n: int) -> str:
        """The workspace of entry ``n``."""
        return f"bench-{n % self.workspaces:02d}"

    def entry_id(self, n: int) -> str:
        """The id of entry ``n``."""
        return f"{self.prefix}{self.seed}-{n:08d}"

    def ranks(self, n: int) -> npt.NDArray[np.int64]:
        """The words of entry ``n`` by rank, ``(40,) int64``."""
        block, place = divmod(n, BLOCK)
        drawn = self._blocks.get(block)
        if drawn is None:
            rng = np.random.default_rng((self.seed, block))
            drawn = np.searchsorted(self._cumulative, rng.random((BLOCK, WORDS))).clip(max=VOCABULARY - 1)
            self._blocks.clear()  # readers go forward; one block is enough
            self._blocks[block] = drawn
        row: npt.NDArray[np.int64] = drawn[place]
        return row

    def is_embedded(self, n: int) -> bool:
        """Whether entry ``n`` is of a type the embed policy takes."""
        return self._types[self._place(n) % len(self._types)][0] in EMBEDDED

    def _place(self, n: int) -> int:
        return n // self.workspaces  # every workspace gets the whole mix

    def submission(self, n: int) -> dict[str, Any]:
        """Entry ``n`` as a client submits it, without its workspace."""
        place = self._place(n)
        kind, severity, actor = self._types[place % len(self._types)]
        words = self.words
        text = [words[rank] for rank in self.ranks(n).tolist()]
        agent = place // SESSION % AGENTS
        moment = START + timedelta(milliseconds=GAP_MS * place)
        return {
            "id": self.entry_id(n),
            "ts": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z",
            "entry_type": kind,
            "severity": severity,
            "crew_id": f"crew-{agent % CREWS}",
            "agent_id": f"agent-{agent:02d}",
            "trace_id": f"s-{place // SESSION:06d}",
            "actor_type": actor,
            "summary": " ".join(text[:SUMMARY_WORDS]),
            "payload": {"text": " ".join(text[SUMMARY_WORDS:])},
        }

    def submissions(self, first: int = 0, last: int | None = None) -> Iterator[dict[str, Any]]:
        """Entries ``first`` to before ``last``."""
        for n in range(first, self.entries if last is None else last):
            yield self.submission(n)

    def queries(self, count: int, seed: int = 1) -> list[str]:
        """Questions of three to six words out of one entry each, leaving out the most frequent and the rarest."""
        rng = random.Random(seed)
        words, queries = self.words, []
        while len(queries) < count:
            ranks = self.ranks(rng.randrange(self.entries)).tolist()
            fitting = sorted({rank for rank in ranks if COMMON <= rank < RARE})
            if len(fitting) >= 3:
                chosen = rng.sample(fitting, min(len(fitting), rng.randint(3, 6)))
                queries.append(" ".join(words[rank] for rank in chosen))
        return queries


def random_units(count: int, dim: int, seed: int) -> npt.NDArray[np.float32]:
    """Random directions, ``(count, dim)`` little-endian float32, L2-normalised."""
    drawn = np.random.default_rng(seed).standard_normal((count, dim), dtype=np.float32)
    unit: npt.NDArray[np.float32] = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype("<f4")
    return unit


def in_batches(items: Iterator[Mapping[str, Any]], size: int) -> Iterator[list[Mapping[str, Any]]]:
    """Lists of at most ``size``."""
    batch: list[Mapping[str, Any]] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
