"""Operations that check the journal against its seals, and prove that an entry is in it."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from ..core.operation import Access, Answer, Effect, Operation, Request, Workspace


class VerifyChainRequest(Request):
    """Check every message of the stream against the seals of the journal and the checkpoints outside it.

    Two verdicts: `integrity`, whether everything that is there is what was sealed, and `completeness`, whether nothing is
    missing that neither an erasure nor an accepted loss explains. All breaks are counted, the first hundred are listed.
    """


class ChainBreakShown(Answer):
    """Something that is wrong: its kind, its sequence (None for a checkpoint outside the stream), and a sentence."""

    kind: str
    seq: int | None
    text: str


class VerifyChainAnswer(Answer):
    """The verdicts and what they rest on.

    ``sealed_to`` is the last sequence that a seal covers: what came after it is sealed within 10 s. ``unsalted``
    messages are from before the log began and are not covered. ``explained`` sequences were erased or accepted as lost.
    ``anchors``: how many checkpoints of each place outside the stream agree. ``root`` is hex.
    """

    integrity: bool
    completeness: bool
    messages: int
    last_seq: int
    sealed_to: int
    seals: int
    unsalted: int
    explained: int
    root: str
    public_key: str
    anchors: dict[str, int]
    restored: tuple[int, ...]
    breaks: tuple[ChainBreakShown, ...]
    counts: dict[str, int]


class ProveEntryRequest(Request):
    """Prove that an entry is in the journal, to somebody who has only its public key and a checkpoint.

    The answer holds everything that a verifier of RFC 9162 needs: the bytes of the leaf, the path to the root, and the
    signed checkpoint (C2SP tlog-checkpoint).
    """

    entry_id: str = Field(description="The entry.")
    workspace_id: Workspace = None


class ProveEntryAnswer(Answer):
    """The proof.

    ``leaf_data`` (base64) is hashed with a leading zero byte; ``path`` holds base64 hashes, the nearest first.
    """

    entry_id: str
    seq: int
    index: int
    size: int
    leaf_data: str
    path: tuple[str, ...]
    checkpoint: str
    public_key: str


VERIFY_CHAIN: Final = Operation(
    name="verify_chain",
    request=VerifyChainRequest,
    answer=VerifyChainAnswer,
    route="POST /v1/admin/verify-chain",
    effect=Effect.READS,
    access=Access.NODE_OWNER,
)
PROVE_ENTRY: Final = Operation(
    name="prove_entry",
    request=ProveEntryRequest,
    answer=ProveEntryAnswer,
    route="GET /v1/admin/proofs/{entry_id}",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
    errors=(404,),
    command="prove",
)
OPERATIONS: Final = (VERIFY_CHAIN, PROVE_ENTRY)
