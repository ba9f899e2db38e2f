"""Settings and thresholds, with units and evidence.

Invariant: ``Settings()`` reads the environment (``CREW_JOURNAL_*``) when it is created, nothing is read at import.
Constants of folds are in ``schemas/rules``, versioned.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from .broker_address import broker_address
from .layered_settings import LayeredSettings
from .limits import *  # noqa: F403 - the limits of requests are read from here, too

EmbedderKind = Literal["auto", "openai", "ollama", "minilm", "none"]
Durability = Literal["durable", "interval"]

DEFAULT_HTTP: Final = "127.0.0.1:9119"

# the writer (facts/nats.md, "Publishing")
PUBLISH_WINDOW: Final = 1_024
"""Unacked publishes at the same time: 38,000 to 43,000 messages/s with 512 to 1,024."""
ACK_TIMEOUT_S: Final = 5.0
"""Seconds until an unacked publish is sent again with the same message id."""
PUBLISH_DEADLINE_S: Final = 30.0
"""Seconds until an append gives up with 503."""
DEDUPE_WINDOW_S: Final = 120.0
"""Seconds for which the broker remembers a Nats-Msg-Id; later repeats are found in the views."""

# the host (DESIGN §5)
BATCH_MESSAGES: Final = 1_000
BATCH_WAIT_S: Final = 0.05
BATCH_BYTES: Final = 2 * 1024 * 1024
"""Bytes of the bodies of one folded batch, unless one message alone is larger: words that no other entry has take a second
for each MiB and 40 times their size in memory."""
REPLAY_BATCH_BYTES: Final = 8 * 1024 * 1024
"""The same for a bulk replay: 5,000 usual entries have 2 MiB, 5,000 vectors of 384 numbers 8 MiB."""
REPLAY_BATCH_MESSAGES: Final = 5_000
"""Messages of one batch of a bulk replay, where latency does not matter."""
REPLAY_LOOKAHEAD: Final = 2
"""Batches read ahead of the commit in a bulk replay, so that reading, decoding and DuckDB work in parallel."""
FOLD_BACKOFF_S: Final = 0.2
FOLD_BACKOFF_MAX_S: Final = 10.0
"""Seconds before a batch that failed because of the environment is retried; doubled each time up to the second value.
"""
PARKINGS_LIMIT: Final = 100
"""Events that a projection may park because of unexpected errors (``KeyError`` …) before it is suspended. A projection
with a bug fails on every event; 100 dead letters (0.2 MB) are enough to find the cause.
"""
PARKING_RECOVERY_EVENTS: Final = 100
"""Folded events that offset one such parking: if more than one event in a hundred fails, the projection is at fault."""
IDLE_TIDY_S: Final = 2.0
"""Seconds without a commit before DuckDB's checkpoint and the merging of postings run."""
WAL_IDLE_BYTES: Final = 4 * 1024 * 1024
"""Size of the write-ahead log above which an idle host checkpoints."""
WAL_BOUND_BYTES: Final = 512 * 1024 * 1024
"""Size of the write-ahead log above which the host checkpoints at once, if DuckDB's memory does not bound it more tightly
(``ViewStore.wal_bound``); bounds disk use and the time of the next start."""
REST_LOOK_S: Final = 0.5
"""Seconds between checks whether the node is idle; then freed memory is returned to the system."""
REST_CPU_SHARE: Final = 0.1
"""CPU use between two checks below which the node is idle, as a share of one core; without requests it is .01."""
GIVE_BACK_GROWTH_BYTES: Final = 32 * 1024 * 1024
"""Growth of the process from which on memory is returned."""
MIN_SEQ_WAIT_S: Final = 5.0
"""Seconds a query waits for ``min_seq``."""
FREE_DISK_FLOOR_BYTES: Final = 256 * 1024 * 1024
"""Free disk space below which the node is not ready."""

# connections (DESIGN §10)
TAILS_PER_TOKEN: Final = 25
"""Live tails of one token: a twentieth of the node's 500, so that no agent can use them up. A broken one counts for up
to 30 s.
"""
HTTP_CONNECTIONS: Final = 768
"""HTTP connections: the 500 live tails of a node and 268 others, below the usual limit of 1,024 open files."""
BODIES_MB: Final = 128
"""Request bodies in memory, MiB; one token may use half. Without a limit, 16 unfinished bodies of one token took 566
MB.
"""

# budgets of the token of an agent (role AGENT or LEAD); OWNER and ADMIN have none
TOKEN_MB_PER_MINUTE: Final = 16
"""MiB of entries and documents: 100 times what the hooks of one busy session write; folded in 20 s even if no word of it is
known."""
TOKEN_ENTRIES_PER_MINUTE: Final = 30_000
"""Entries and documents: folded in 4 s if they are small."""
TOKEN_WAITING_MB: Final = 4
"""MiB that wait to be folded: two large requests of a client. They take 4.5 s if no word of them is known, usually 1; others
wait for the views for 5 s (``MIN_SEQ_WAIT_S``)."""
TOKEN_REQUESTS: Final = 64
"""Requests of one token that are answered at the same time, streams included."""

# models
OLLAMA_DEFAULT_HOST: Final = "http://127.0.0.1:11434"
OLLAMA_CONTAINER_HOST: Final = "http://host.docker.internal:11434"
"""Ollama on the machine that runs the container (seed 1): used in a container if nothing listens at the default."""
OLLAMA_DEFAULT_MODEL: Final = "nomic-embed-text"
EMBED_DEFAULT_MODEL: Final = "text-embedding-3-small"
"""The embedding model of an OpenAI-compatible endpoint if none is named (seed 5)."""
EMBED_TIMEOUT_S: Final = 15.0
EMBED_BATCH: Final = 64
"""Texts of one embedding call (contract §3)."""
EMBED_INPUT_BYTES: Final = 4_096

# relations (contract §7)
SIMILAR_THRESHOLD: Final = 0.8
"""Default smallest cosine of a ``similar`` relation."""
SIMILAR_EDGES: Final = 3
"""Most ``similar`` edges of a new entry."""
UPDATE_CANDIDATES: Final = 24
"""Nearest entries of the crew that are checked for updates, whatever their cosine; those of other agents do not count. A
check costs about 0.2 ms.
"""
CONTRADICTION_CANDIDATES: Final = 10
"""Nearest entries that are checked for contradictions. More than the three that are linked, since many may be alike; a
check costs about 0.2 ms.
"""
JUDGE_TIMEOUT_S: Final = 20.0
"""Seconds within which a language model must judge a borderline contradiction."""
LLM_TIMEOUT_S: Final = 120.0
"""Seconds for an answer of a chat model; a small one on a CPU reads 20,000 tokens in about a minute."""
LLM_DEFAULT_MODEL: Final = "gpt-4o-mini"
"""The chat model of an OpenAI-compatible endpoint if none is named (seed 5)."""


def _cache_home() -> Path:
    """``.cache`` of the checkout (where ``make setup`` downloads to) if it runs from its ``.venv``, else the user's."""
    checkout = Path(sys.prefix).parent
    if (checkout / "deploy" / "install-nats").is_file() and (checkout / "schemas" / "settings.py").is_file():
        return checkout / ".cache"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "crew-journal"


class Settings(LayeredSettings):
    """Settings of a node; each field is read from the variable ``CREW_JOURNAL_<NAME>``."""

    model_config = SettingsConfigDict(
        env_prefix="CREW_JOURNAL_", frozen=True, extra="ignore", hide_input_in_errors=True
    )

    data_dir: Path = Field(default=Path(".crew-journal"), description="Directory of all data.")
    http: str = Field(default=DEFAULT_HTTP, description="HOST:PORT of HTTP; port 0 picks one.")
    http_hosts: str = Field(
        default="",
        description="Host names, separated by commas, that the Host header may have; IP addresses are always accepted.",
    )
    nats: str | None = Field(
        default=None,
        description="URL of a broker of your own; if absent, the node starts one.",
    )
    nats_user: str | None = Field(
        default=None, description="User at that broker; without a password, it is sent as a token.", repr=False
    )
    nats_password: str | None = Field(default=None, description="Password at that broker.", repr=False)
    nats_server: Path | None = Field(default=None, description="Path of the nats-server binary to start.")
    durability: Durability = Field(
        default="durable", description="durable: fsync before the ack; interval: fsync every 250 ms."
    )
    embedder: EmbedderKind = Field(default="auto", description="Which model embeds.")
    ollama_host: str = Field(
        default_factory=lambda: os.environ.get("OLLAMA_HOST", OLLAMA_DEFAULT_HOST),
        description="URL of Ollama; OLLAMA_HOST is read too.",
    )
    ollama_model: str = Field(default=OLLAMA_DEFAULT_MODEL, description="Ollama's embedding model.")
    embed_base_url: str | None = Field(
        default_factory=lambda: os.environ.get("CRAWBL_EMBED_BASE_URL") or None,
        description="URL of an OpenAI-compatible endpoint that embeds; CRAWBL_EMBED_BASE_URL is read too.",
    )
    embed_api_key: str | None = Field(
        default_factory=lambda: os.environ.get("CRAWBL_EMBED_API_KEY") or None,
        description="Key of that endpoint; CRAWBL_EMBED_API_KEY is read too.",
        repr=False,
    )
    embed_model: str = Field(
        default_factory=lambda: os.environ.get("CRAWBL_EMBED_MODEL") or EMBED_DEFAULT_MODEL,
        pattern=r"^[A-Za-z0-9._:/-]{1,89}$",
        description="Embedding model of that endpoint; CRAWBL_EMBED_MODEL is read too.",
    )
    cache_dir: Path = Field(
        default_factory=_cache_home,
        description="Directory of downloaded weights and binaries.",
    )
    similar_threshold: float = Field(
        default=SIMILAR_THRESHOLD,
        description="Smallest cosine of a similar relation; a value outside (0, 1] counts as 0.8.",
    )
    judge_model: str | None = Field(
        default=None,
        description="Chat model that judges borderline contradictions, of llm_base_url if set, else of Ollama.",
    )
    llm_model: str | None = Field(
        default_factory=lambda: os.environ.get("CRAWBL_CLASSIFY_MODEL") or None,
        description="Chat model of Ollama, or of llm_base_url; without either, no text is sent to a chat model.",
    )
    llm_base_url: str | None = Field(
        default_factory=lambda: os.environ.get("CRAWBL_LLM_BASE_URL") or None,
        description="URL of an OpenAI-compatible endpoint; Ollama is used if absent.",
    )
    llm_api_key: str | None = Field(
        default_factory=lambda: os.environ.get("CRAWBL_LLM_API_KEY") or None,
        description="Key of that endpoint.",
        repr=False,
    )
    heuristic_high: str | None = Field(
        default_factory=lambda: os.environ.get("CRAWBL_MEM_HEURISTIC_HIGH"),
        description="Confidence from which the classifier of the palace decides a type alone; CRAWBL_MEM_HEURISTIC_HIGH is "
        "read too. If absent, 0.8 without a chat model, else 999 (never); a value that is not a number counts as 999.",
    )
    heuristic_low: str | None = Field(
        default_factory=lambda: os.environ.get("CRAWBL_MEM_HEURISTIC_LOW"),
        description="Confidence from which the nearest centroid may decide the type; CRAWBL_MEM_HEURISTIC_LOW is read "
        "too. If absent, 0.5 or 999.",
    )
    secrets: Literal["redact", "refuse", "keep"] = Field(
        default="redact",
        description="What is done with credentials (API keys, tokens, private keys, passwords) in a text that is to be "
        "stored: redact replaces them, refuse refuses the text, keep stores it. The scrubber of a workspace has precedence.",
    )
    query_log: bool = Field(
        default=True,
        description="Record every recall, with its query, as memory.searched. If false, recalls have no receipt.",
    )
    tails_per_token: int = Field(
        default=TAILS_PER_TOKEN,
        ge=1,
        description="Live tails that one token of one workspace may have open at once; a node allows 500 in all.",
    )
    http_connections: int = Field(
        default=HTTP_CONNECTIONS,
        ge=8,
        description="HTTP connections at once; a new one replaces one without a request.",
    )
    bodies_mb: int = Field(
        default=BODIES_MB, ge=64, description="Request bodies in memory at once, MiB; one token may use half."
    )
    token_mb_per_minute: int = Field(
        default=TOKEN_MB_PER_MINUTE,
        ge=0,
        description="MiB that a token of role AGENT or LEAD may write a minute; 0 for no limit.",
    )
    token_entries_per_minute: int = Field(
        default=TOKEN_ENTRIES_PER_MINUTE,
        ge=0,
        description="Entries and documents that such a token may write a minute; 0 for no limit.",
    )
    token_waiting_mb: int = Field(
        default=TOKEN_WAITING_MB,
        ge=0,
        description="MiB written by such a token that may wait to be folded, and the most of one request; 0 for no limit.",
    )
    token_requests: int = Field(
        default=TOKEN_REQUESTS,
        ge=0,
        description="Requests of such a token that may be open at once, streams included; 0 for no limit.",
    )
    memory_provider: str = Field(
        default="journal",
        description="Where memory documents are kept: journal, disk, http, or module:factory of a provider of your own.",
    )
    memory_provider_url: str | None = Field(default=None, description="URL of the service, for http.")
    memory_provider_token: str | None = Field(default=None, description="Token for that service.", repr=False)
    memory_provider_root: Path | None = Field(default=None, description="Directory of the files, for disk.")
    memory_file: Path | None = Field(
        default=None, description="TOML file that chooses the provider of individual workspaces."
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
        """Move user and password from the URL to their fields; empty values count as absent."""
        if not isinstance(data, dict):
            return data
        names = ("nats", "nats_user", "nats_password")
        values = {name: value for name, value in data.items() if name not in names or value not in (None, "")}
        if isinstance(url := values.get("nats"), str) and not {"nats_user", "nats_password"} & values.keys():
            with suppress(ValueError):  # the field's own validation reports it
                address = broker_address(url)
                values |= {"nats": address.url, "nats_user": address.user, "nats_password": address.password}
        return values

    @field_validator("nats")
    @classmethod
    def _check_broker(cls, url: str | None) -> str | None:
        if url is None:
            return None
        address = broker_address(url)
        if address.user is not None:
            raise ValueError("contains a user, but nats_user or nats_password is set, too: give the user once")
        return address.url

    @property
    def models_dir(self) -> Path:
        """Directory of embedded models, below the cache."""
        return self.cache_dir / "models"

    @property
    def nats_dir(self) -> Path:
        """Directory of nats-server binaries, below the cache."""
        return self.cache_dir / "nats"
