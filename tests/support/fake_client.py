"""The boundary between the command line and the journal, with an answer to everything."""

from collections.abc import Callable
from typing import Any

from crew_journal.schemas.access.operations import (
    BrokerAnswer,
    TokenCreatedAnswer,
    TokenRecord,
    TokenRevokedAnswer,
    TokensAnswer,
)
from crew_journal.schemas.api import CountAnswer, EntriesAnswer, EntryRecord, Receipt
from crew_journal.schemas.operate.operations import DeadLetter, DeadLetterAnswer, DeadLettersAnswer
from crew_journal.schemas.recall.operations import RecallAnswer, UsedAnswer
from crew_journal.schemas.standing.operations import PriorityAnswer
from crew_journal.schemas.sweeps.operations import SweepAnswer

URL = ["--url", "http://127.0.0.1:1", "--token", "cj_x"]
ENTRY = {
    "id": "a1",
    "workspace_id": "default",
    "ts": "2026-01-01T00:00:00.000Z",
    "entry_type": "run.completed",
    "summary": "done",
    "seq": 7,
}
TOKEN = {
    "token_id": "t1",
    "role": "AGENT",
    "workspace_id": "default",
    "crew_id": None,
    "agent_id": "ada",
    "label": "",
    "created_ms": 1,
    "revoked_ms": None,
}
VIEW = {"rows": 3, "digest": "00", "tables": {}}
LETTER = {
    "projection": "entries",
    "version": 1,
    "seq": 3,
    "subject": "s",
    "reason": "odd",
    "parked_ms": 1,
    "state": "parked",
    "workspace_id": "default",
}


class FakeClient:
    """The client's boundary, with an answer to everything; ``asked`` remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.fails_with: Exception | None = None
        self.equal = True

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **given: Any) -> Any:
            self.asked.append((name, args, given))
            if self.fails_with is not None:
                raise self.fails_with
            return self.answer(name, args)

        return call

    def answer(self, name: str, args: tuple[Any, ...]) -> Any:
        entry = EntryRecord.model_validate(ENTRY)
        hit = {
            **{n: ENTRY[n] for n in ("ts", "entry_type", "summary")},
            "entry_id": "a1",
            "score": 1.5,
            "confidence": 0.8,
            "reason": "same words: what",
            "age_seconds": 5,
            **dict.fromkeys(("agent_id", "crew_id", "actor_id", "trace_id", "mission_id")),
            "actor_type": "agent",
            "severity": "info",
            "priority": "normal",
            "live_priority": "normal",
            "seq": 7,
            "payload": {},
            "refs": {},
            "supersedes": (),
            "valid_at": None,
        }
        difference = {"table": "postings", "key": {"doc": "7"}, "column": "tf", "kind": "changed"}
        verified = {
            "projection": "fulltext",
            "seq": 7,
            "equal": self.equal,
            "live": VIEW,
            "fresh": VIEW,
            "differences": [] if self.equal else [difference],
            "differing": {} if self.equal else {"postings": {"changed": 2, "only live": 1}},
        }
        answers: dict[str, Callable[[], Any]] = {
            "append": lambda: Receipt(id="a1", seq=7),
            "append_batch": lambda: tuple(Receipt(id=r["id"], seq=i + 1) for i, r in enumerate(args[0])),
            "list": lambda: EntriesAnswer(entries=(entry,), next_cursor=None, view_seq=7),
            "get": lambda: entry,
            "used": lambda: UsedAnswer(receipt=args[0], counted=2, already=False),
            "count": lambda: CountAnswer(count=5, view_seq=7),
            "tail": lambda: iter([entry, entry]),
            "recall": lambda: RecallAnswer.model_validate({**RECALLED, "hits": [hit]}),
            "status": lambda: {"view_seq": 7, "embedder": {"mode": "sparse-only"}, "reactors": [{"name": "embed"}]},
            "rebuild": lambda: iter([{"done": 1, "total": 2}, {"result": {"projections": ["entries"], "seq": 7}}]),
            "salvage": lambda: iter(
                [{"entry": {"id": "e1", "summary": "lost"}}, {"result": {"entries": 1, "decisions": 0}}]
            ),
            "verify": lambda: iter([{"result": {"equal": self.equal, "projections": [verified]}}]),
            "dead_letters": lambda: DeadLettersAnswer(dead_letters=(DeadLetter.model_validate(LETTER),)),
            "retry_dead_letter": lambda: DeadLetterAnswer(seq=args[0], state="retried", new_seq=9),
            "discard_dead_letter": lambda: DeadLetterAnswer(seq=args[0], state="discarded"),
            "tokens": lambda: TokensAnswer(tokens=(TokenRecord.model_validate(TOKEN),)),
            "create_token": lambda: TokenCreatedAnswer.model_validate({**TOKEN, "token": "cj_secret"}),
            "revoke_token": lambda: TokenRevokedAnswer(token_id=args[0]),
            "embedder_status": lambda: {"kind": "none", "mode": "sparse-only"},
            "activate_model": lambda: {"model": args[0], "changed": True, "missing": 2, "embeddable": 5},
            "embedding_models": lambda: {"workspace_id": None, "models": [MODEL]},
            "add_model": lambda: {"model": MODEL["model"], "changed": True, "dim": 384},
            "compare_models": lambda: iter([{"done": 1, "total": 1}, {"result": COMPARED}]),
            "drop_model": lambda: {"model": args[0], "changed": True},
            "set_priority": lambda: PriorityAnswer.model_validate(
                {"entry_id": args[0], "priority": args[1], "previous_priority": "normal", "changed": True, "seq": 8}
            ),
            "sweep": lambda: SweepAnswer(workspace_id="default", sweep=args[0], due=ENTRY["ts"], seq=8),
            "broker": lambda: BrokerAnswer(url="nats://x", user=None, password=None),
        }
        return answers[name]()


RECALLED = {
    "receipt": "r_1", "scope": "workspace", "recipe": "robust", "model": None, "degraded": "lexical-only", "view_seq": 7,
    "confidence": 0.9, "no_evidence": False, "without_vectors": 0, "awaiting_vectors": 0,
}  # fmt: skip
MODEL = {
    "model": "all-MiniLM-L6-v2", "embedder": "minilm", "state": "added", "active": True, "active_in": ["_system"],
    "filled": True, "dim": 384, "vectors": 5, "refused": 0, "missing": 0, "embeddable": 5, "filling": None,
    "outcome": {"mode": "vector", "message": None, "last_success": "2026-11-21T09:00:00.000Z"},
}  # fmt: skip

COMPARED = {
    "models": ["a", "b"], "coverage": {name: {"vectors": 5, "embeddable": 5} for name in ("a", "b")}, "queries": 1,
    "recipe": "robust", "k": 10, "jaccard": 0.5, "rank_biased_overlap": 0.4, "persistence": 0.9, "same_first": 0.0,
    "mean_cosine": {"a": 0.4, "b": None}, "most_different": [{"query": "why?", "rank_biased_overlap": 0.4}],
}  # fmt: skip
