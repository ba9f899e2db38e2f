"""Every setting and threshold, typed, with its unit in its name and its evidence beside it.

Invariant: nothing here is read at import; ``Settings()`` reads the environment (``CREW_JOURNAL_*``) when it is made.
What folds depend on is not here but in ``schemas/rules`` (versioned) or arrives as events.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from .broker_address import broker_address

EmbedderKind = Literal["auto", "ollama", "minilm", "none"]
Durability = Literal["durable", "interval"]

DEFAULT_HTTP: Final = "127.0.0.1:9119"
DEFAULT_WORKSPACE: Final = "default"
MAX_BATCH: Final = 1_000
"""Entries of one HTTP batch (DESIGN §10)."""
MAX_BATCH_BYTES: Final = 32 * 1024 * 1024
"""Bytes of one HTTP request body."""
REQUEST_BYTES: Final = 8 * 1024 * 1024
"""Bytes of entries after which a client begins another request: a quarter of what the service takes."""

# the writer (facts/nats.md, "Publishing")
PUBLISH_WINDOW: Final = 1_024
"""Unacked publishes at once: 38-43k messages/s with 512 to 1,024."""
ACK_TIMEOUT_S: Final = 5.0
"""Seconds until an unacked publish is sent again with the same message id."""
PUBLISH_DEADLINE_S: Final = 30.0
"""Seconds until an append gives up with 503."""
DEDUPE_WINDOW_S: Final = 120.0
"""Seconds the broker remembers a Nats-Msg-Id; the view knows the rest."""
ATOMIC_BATCH: Final = 500
"""Messages of one atomic batch; 23k/s at 1,000 with fsync always, errors cost less at 500."""

# the host (DESIGN §5)
BATCH_MESSAGES: Final = 1_000
BATCH_WAIT_S: Final = 0.05
REPLAY_BATCH_MESSAGES: Final = 5_000
"""Messages of one batch of a bulk replay, where nobody waits for freshness."""
REPLAY_LOOKAHEAD: Final = 2
"""Batches read ahead of the commit in a bulk replay: the stream, decoding and DuckDB work side by side."""
FOLD_BACKOFF_S: Final = 0.2
FOLD_BACKOFF_MAX_S: Final = 10.0
"""Seconds before a batch that failed for the environment's fault is tried again: doubled each time up to the bound."""
PARKINGS_LIMIT: Final = 100
"""Events that a projection may have parked for faults it did not foresee (``KeyError`` …) before it is suspended instead.
A view of our own parked none in all generated journals; a new one with a bug parks every event it looks at. 100 parkings
are 0.2 MB in streams kept for ever and as many lines in ``dlq list``: enough to see what they have in common."""
PARKING_RECOVERY_EVENTS: Final = 100
"""Folded events that make good one such parking: beyond one in a hundred it is the fold that is odd, not the events. That
others in between were folded must not excuse it, for a fold passes over every type that it does not look at."""
IDLE_TIDY_S: Final = 2.0
"""Seconds without a commit until checkpoint and merging of postings are done."""
WAL_IDLE_BYTES: Final = 4 * 1024 * 1024
"""Write-ahead log above which an idle host checkpoints."""
WAL_BOUND_BYTES: Final = 512 * 1024 * 1024
"""Write-ahead log above which the host checkpoints at once; bounds disk use and the replay at the next start."""
REST_LOOK_S: Final = 0.5
"""Seconds between looks at whether the node is at rest, when memory that was freed is given back."""
REST_CPU_SHARE: Final = 0.1
"""Share of one core, between two looks, below which it is; a node without requests takes .01."""
GIVE_BACK_GROWTH_BYTES: Final = 32 * 1024 * 1024
"""Growth of the process that is worth it: what is given back must be asked for again by the next who need it."""
MIN_SEQ_WAIT_S: Final = 5.0
"""Seconds a query waits for ``min_seq``."""
FREE_DISK_FLOOR_BYTES: Final = 256 * 1024 * 1024
"""Below this much free disk the node is not ready."""

# queries (contract §1, §4, §5)
LIST_LIMIT_DEFAULT: Final = 100
LIST_LIMIT_MAX: Final = 500
Q_MAX_CHARS: Final = 200
RECALL_K_DEFAULT: Final = 5
RECALL_K_MAX: Final = 50
RECALL_QUERY_MAX_CHARS: Final = 4_000
TAIL_SEED: Final = 50
TAIL_REPLAY_MAX: Final = 500
TAILS_PER_TOKEN: Final = 25
"""Live tails at once of one token: a twentieth of the node's 500 places, so that no agent takes those of the others, and
more than a person, a dashboard or an agent watches; a tail that broke holds its place for up to 30 s."""

HTTP_CONNECTIONS: Final = 768
"""Connections to HTTP at once: the 500 live tails of a node and 268 more, below the 1,024 open files that most systems
allow a process."""
BODIES_MB: Final = 128
"""Request bodies in memory at once, MiB; a token may take half. 16 unfinished bodies of one token took 566 MB."""

# models
OLLAMA_DEFAULT_HOST: Final = "http://127.0.0.1:11434"
OLLAMA_DEFAULT_MODEL: Final = "nomic-embed-text"
EMBED_TIMEOUT_S: Final = 15.0
EMBED_BATCH: Final = 64
"""Texts of one embedding call (contract §3)."""
EMBED_INPUT_BYTES: Final = 4_096

# relations (contract §7)
SIMILAR_THRESHOLD: Final = 0.8
"""Least cosine of ``similar``; a setting outside (0, 1] counts as this."""
SIMILAR_EDGES: Final = 3
"""Most ``similar`` edges of a new entry."""
CONTRADICTION_CANDIDATES: Final = 10
"""Nearest entries whose text is held against a new one: where many are alike, the one it contradicts need not be among
the best three. The rule costs about 0.2 ms a pair."""
JUDGE_TIMEOUT_S: Final = 20.0
"""Seconds a language model has for one verdict about a borderline contradiction."""


def _cache_home() -> Path:
    """The checkout's own cache where we run from a checkout's ``.venv``, so that what ``make setup`` fetched is found."""
    checkout = Path(sys.prefix).parent
    if (checkout / "deploy" / "install-nats").is_file() and (checkout / "schemas" / "settings.py").is_file():
        return checkout / ".cache"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "crew-journal"


class Settings(BaseSettings):
    """Settings of one node; each field is also ``CREW_JOURNAL_<NAME>`` in the environment."""

    model_config = SettingsConfigDict(
        env_prefix="CREW_JOURNAL_", frozen=True, extra="ignore", hide_input_in_errors=True
    )

    data_dir: Path = Field(default=Path(".crew-journal"), description="Directory of everything kept.")
    http: str = Field(default=DEFAULT_HTTP, description="HOST:PORT of HTTP; port 0 picks one.")
    http_hosts: str = Field(
        default="", description="Names, separated by commas, that requests may use in the Host header beside addresses."
    )
    nats: str | None = Field(
        default=None,
        description="URL of a broker of your own, without user and password once read; a managed one if absent.",
    )
    nats_user: str | None = Field(
        default=None, description="User at that broker; a token if there is no password.", repr=False
    )
    nats_password: str | None = Field(default=None, description="Password at that broker.", repr=False)
    nats_server: Path | None = Field(default=None, description="The nats-server binary to manage.")
    durability: Durability = Field(
        default="durable", description="durable: fsync before the ack; interval: fsync every 250 ms."
    )
    embedder: EmbedderKind = Field(default="auto", description="Which model embeds.")
    ollama_host: str = Field(
        default_factory=lambda: os.environ.get("OLLAMA_HOST", OLLAMA_DEFAULT_HOST),
        description="URL of Ollama; OLLAMA_HOST is read too.",
    )
    ollama_model: str = Field(default=OLLAMA_DEFAULT_MODEL, description="Ollama's embedding model.")
    cache_dir: Path = Field(
        default_factory=_cache_home,
        description="Directory of downloaded weights and binaries.",
    )
    similar_threshold: float = Field(
        default=SIMILAR_THRESHOLD, description="Least cosine of a similar edge; outside (0, 1] it counts as 0.8."
    )
    judge_model: str | None = Field(
        default=None,
        description="Chat model of Ollama that is asked about borderline contradictions; none is asked if absent.",
    )
    query_log: bool = Field(
        default=True, description="Log at most one recall a second and workspace as memory.searched, query included."
    )
    tails_per_token: int = Field(
        default=TAILS_PER_TOKEN,
        ge=1,
        description="Live tails at once of one token that is for one workspace; a node has 500 places.",
    )
    http_connections: int = Field(
        default=HTTP_CONNECTIONS,
        ge=8,
        description="HTTP connections at once; a new one takes the place of one without a request.",
    )
    bodies_mb: int = Field(
        default=BODIES_MB, ge=64, description="Request bodies in memory at once, MiB; half of it for one token."
    )
    replicas: int = Field(default=1, ge=1, le=5, description="Stream replicas.")
    hot_index_mb: int = Field(default=512, ge=16, description="Memory budget of the hot indexes, MiB.")
    duckdb_memory_mb: int = Field(default=512, ge=64, description="DuckDB memory limit, MiB.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe level that is logged."
    )

    @model_validator(mode="before")
    @classmethod
    def _part_broker(cls, data: Any) -> Any:
        """Take user and password out of the URL, and what is set to nothing for not set."""
        if not isinstance(data, dict):
            return data
        names = ("nats", "nats_user", "nats_password")
        given = {name: value for name, value in data.items() if name not in names or value not in (None, "")}
        if isinstance(named := given.get("nats"), str) and not {"nats_user", "nats_password"} & given.keys():
            with suppress(ValueError):  # told of the field, where it is validated
                address = broker_address(named)
                given |= {"nats": address.url, "nats_user": address.user, "nats_password": address.password}
        return given

    @field_validator("nats")
    @classmethod
    def _check_broker(cls, named: str | None) -> str | None:
        if named is None:
            return None
        address = broker_address(named)
        if address.user is not None:
            raise ValueError("names a user, and so does nats_user or nats_password: give one of the two")
        return address.url

    @property
    def models_dir(self) -> Path:
        """Where embedded models are installed, below the cache."""
        return self.cache_dir / "models"

    @property
    def nats_dir(self) -> Path:
        """Where ``deploy/install-nats`` puts a nats-server, below the cache."""
        return self.cache_dir / "nats"
