"""Operations that check the journal against its seals, prove an entry, and move a workspace with its proofs."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from ..core.limits import MAX_BATCH
from ..core.operation import MAX_SEQ, Access, Answer, Effect, Operation, Request, Workspace


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


class ExportLogRequest(Request):
    """Read a workspace as lines of a file that can be checked without this journal (docs/chain.md).

    Each answer continues at ``from_seq``. The first one seals what is not sealed yet; ``to_seq`` of it is to be sent
    with the following requests, so that the file ends where the first one did.
    """

    from_seq: int = Field(default=1, ge=1, le=MAX_SEQ, description="Sequence at which the answer begins.")
    to_seq: int | None = Field(default=None, ge=1, le=MAX_SEQ, description="`to_seq` of the first answer.")
    workspace_id: Workspace = None


class ExportLogAnswer(Answer):
    """Some lines; ``next_seq`` is null after the last ones."""

    lines: tuple[dict[str, Any], ...]
    to_seq: int
    next_seq: int | None


class LoggedMessageSent(BaseModel):
    """A message of a file: its sequence there and its subject; headers and body are base64."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    seq: int = Field(ge=1, le=MAX_SEQ)
    subject: str = Field(max_length=256)
    headers: str
    body: str


class ImportLogRequest(Request):
    """Take over messages of a file that ``export --proofs`` wrote; ``crew-journal import`` has checked the file.

    Messages keep their ids, contents and publishers, and get the header `Crew-Origin` with the key and sequence of the
    journal that they are from. What is there already is not stored again. Left out are what this journal derives itself
    (vectors, links, compaction), and what counts only where it was decided: tokens, consents, models of people,
    erasures, the records of sweeps. With ``last``, messages of an earlier import whose sequences are in ``erased`` are
    erased, and `journal.imported` records the import.
    """

    public_key: str = Field(description="The key that signed the file.")
    checkpoint: str = Field(max_length=2_000, description="The last checkpoint of the file.")
    messages: tuple[LoggedMessageSent, ...] = Field(
        default=(), max_length=MAX_BATCH, description="Messages in the order of the file."
    )
    erased: str = Field(default="", description="Sequences that were erased there, as ranges: `3,7-9`.")
    last: StrictBool = Field(default=False, description="Whether these are the last messages.")
    imported: int = Field(default=0, ge=0, description="With `last`: messages that the earlier requests stored.")
    workspace_id: Workspace = None


class ImportLogAnswer(Answer):
    """How many messages were stored, were there before, or were left out by their kind.

    ``erasure_id`` is the erasure that ``last`` began, ``seq`` the last sequence that was stored.
    """

    imported: int
    repeated: int
    left_out: dict[str, int]
    seq: int | None
    erasure_id: str | None


EXPORT_LOG: Final = Operation(
    name="export_log",
    request=ExportLogRequest,
    answer=ExportLogAnswer,
    route="GET /v1/admin/log",
    effect=Effect.READS,
    access=Access.ADMINISTRATOR,
)
IMPORT_LOG: Final = Operation(
    name="import_log",
    request=ImportLogRequest,
    answer=ImportLogAnswer,
    route="POST /v1/admin/log",
    effect=Effect.CHANGES,
    access=Access.NODE_OWNER,
    errors=(409, 422),
)
OPERATIONS: Final = (VERIFY_CHAIN, PROVE_ENTRY, EXPORT_LOG, IMPORT_LOG)
