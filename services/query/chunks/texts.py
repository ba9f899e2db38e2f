"""What hot indexes of texts have in common: owners of chunks, and the vectors of their texts by hash.

Invariant: vectors are of ``model`` alone, found by the hash of what was embedded: a text that stands in several places, or
comes back, is embedded once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....schemas.views import CHUNK_VECTORS
from ..hot.arrow import runs, sequences, values_of
from ..hot.rows import Rows
from ..hot.vector_matrix import FLOAT32_LE
from .owner import OwnerChunks, Slots

DEAD_KEPT: Final = 2_000
"""Dead chunks, beyond as many as live, from which an index is loaded again to free them."""


class TextIndex:
    """The texts of a workspace.

    Args:
        workspace_id: The workspace.
        model: The model whose vectors it holds; None for none.
        seq: The sequence whose state it is.

    Attributes:
        taken: How often it took in rows.
    """

    def __init__(self, workspace_id: str, model: str | None, seq: int = 0) -> None:
        self.workspace_id = workspace_id
        self.model = model
        self.seq = seq
        self.taken = 0
        self.owners: dict[str, OwnerChunks] = {}
        self._embedded: dict[int, tuple[OwnerChunks, int]] = {}  # text hash → a chunk that has its vector
        self._waiting: dict[int, list[tuple[OwnerChunks, int]]] = {}  # text hash → chunks without one
        self._stored: set[int] = set()  # text hashes that have a vector in the view, chunk or not
        self._lacks = False  # whether a text came back whose vector only the view has

    def __len__(self) -> int:
        return sum(len(owner) for owner in self.owners.values())

    @property
    def nbytes(self) -> int:
        """Bytes held, names aside."""
        return sum(owner.nbytes for owner in self.owners.values())

    @property
    def worn(self) -> bool:
        """Whether loading it again would find a vector, free much memory or make searches faster."""
        if self._lacks:
            return True
        dead = sum(owner.dead for owner in self.owners.values())
        return dead > DEAD_KEPT + (len(self) - dead) or any(owner.worn for owner in self.owners.values())

    def seek_vectors(self, owner: OwnerChunks, slots: Slots) -> None:
        """Copy vectors that other chunks of the same text have; the other new chunks wait for theirs."""
        if self.model is None:
            return
        for slot, text_hash in zip(slots.tolist(), owner.hashes[slots].tolist(), strict=True):
            held = self._embedded.get(text_hash)
            vector_and_seq = None if held is None else held[0].vector_of(held[1])
            self._lacks |= vector_and_seq is None and text_hash in self._stored
            if vector_and_seq is None:
                self._waiting.setdefault(text_hash, []).append((owner, slot))
            else:
                owner.put_vectors(np.array([slot]), vector_and_seq[0][None, :], np.array([vector_and_seq[1]]))

    def take_vectors(self, rows: Rows) -> None:
        """Take in vectors of texts that wait for theirs."""
        table = None
        if self.model is not None:
            table = rows.of(CHUNK_VECTORS, "text_hash", "vector", "seq", model=self.model)
        if table is None:
            return
        values, counts = runs(table, "vector", FLOAT32_LE)
        dim = next((count for count in counts.tolist() if count), 0)
        begins = np.cumsum(counts) - counts
        seqs = sequences(table, "seq")
        chosen: dict[OwnerChunks, tuple[list[int], list[int]]] = {}
        for at, text_hash in enumerate(values_of(table, "text_hash")):
            if not dim or counts[at] != dim:
                continue  # a tombstone: the model does not take the text
            self._stored.add(text_hash)
            for owner, slot in self._waiting.pop(text_hash, ()):
                slots, places = chosen.setdefault(owner, ([], []))
                slots.append(slot)
                places.append(at)
                self._embedded[text_hash] = owner, slot
        for owner, (slots, places) in chosen.items():
            matrix = values[begins[places][:, None] + np.arange(dim)]
            owner.put_vectors(np.array(slots), matrix, seqs[places])
