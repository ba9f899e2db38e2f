"""Settings and thresholds, with units and evidence.

Each setting is declared once, as a field: its variable ``CREW_JOURNAL_<NAME>``, the tables in ``docs/settings.md`` and
``crew-journal config show`` follow from it.

Invariant: ``Settings()`` reads the environment when it is created, nothing is read at import. Constants of folds are
part of the families' versioned rules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from .context.budget import SYSTEM_DEFAULT, TOTAL_DEFAULT, Budget
from .context.salience import RECENCY_HALF_LIFE_HOURS, Weights
from .core.broker_address import LoginFiles, broker_address
from .core.limits import *  # noqa: F403 - the limits of requests are read from here, too
from .core.user_folders import own_journal

EmbedderKind = Literal["auto", "openai", "ollama", "minilm", "none"]
Durability = Literal["durable", "interval"]

# the writer (facts/nats.md, "Publishing")
PUBLISH_WINDOW: Final = 1_024
"""Maximum number of unacked publishes; 512 to 1,024 reach 38,000 to 43,000 messages/s."""
ACK_TIMEOUT_S: Final = 5.0
"""Seconds until an unacked publish is sent again with the same message id."""
PUBLISH_DEADLINE_S: Final = 30.0
"""Seconds until an append gives up with 503."""
DEDUPE_WINDOW_S: Final = 120.0
"""Seconds for which the broker remembers a Nats-Msg-Id; the views recognise later repeats."""

# the host (DESIGN §5)
BATCH_MESSAGES: Final = 1_000
BATCH_WAIT_S: Final = 0.05
BATCH_BYTES: Final = 2 * 1024 * 1024
"""Bytes of the bodies of one folded batch, unless one message alone is larger: words that occur in no other entry take
a second per MiB and 40 times their size in memory.
"""
REPLAY_BATCH_BYTES: Final = 8 * 1024 * 1024
"""Bytes of the bodies of one batch of a bulk replay: 5,000 usual entries have 2 MiB, 5,000 vectors of 384 numbers 8 MiB."""
REPLAY_BATCH_MESSAGES: Final = 5_000
"""Messages of one batch of a bulk replay, where latency does not matter."""
REPLAY_LOOKAHEAD: Final = 2
"""Batches read ahead of the commit in a bulk replay, so that reading, decoding and DuckDB work in parallel."""
FOLD_BACKOFF_S: Final = 0.2
FOLD_BACKOFF_MAX_S: Final = 10.0
"""Seconds before a batch that failed because of the environment is retried; doubled each time, up to the second value.
"""
PARKINGS_LIMIT: Final = 100
"""Events that a projection may park because of unexpected errors (``KeyError`` …) before it is suspended. A projection
with a bug fails on every event; 100 dead letters (0.2 MB) are enough to find the cause.
"""
PARKING_RECOVERY_EVENTS: Final = 100
"""Number of folded events that offset one such parking: if more than 1 % of the events fail, the projection is at fault."""
IDLE_TIDY_S: Final = 2.0
"""Seconds without a commit before DuckDB's checkpoint and the merging of postings run."""
WAL_IDLE_BYTES: Final = 4 * 1024 * 1024
"""Size of the write-ahead log above which an idle host checkpoints."""
WAL_BOUND_BYTES: Final = 512 * 1024 * 1024
"""Size of the write-ahead log above which the host checkpoints at once, unless DuckDB's memory allows less
(``ViewStore.wal_bound``). It limits disk use and the time of the next start.
"""
REST_LOOK_S: Final = 0.5
"""Seconds between checks whether the node is idle; then freed memory is returned to the system."""
REST_CPU_SHARE: Final = 0.1
"""The node is idle if it used less CPU than this between two checks, as a share of one core; without requests it uses
.01.
"""
GIVE_BACK_GROWTH_BYTES: Final = 32 * 1024 * 1024
"""Memory is returned once the process has grown by at least this many bytes."""
MIN_SEQ_WAIT_S: Final = 5.0
"""Seconds a query waits for ``min_seq``."""
FREE_DISK_FLOOR_BYTES: Final = 256 * 1024 * 1024
"""Free disk space below which the node is not ready."""

# connections (DESIGN §10)
TAILS_PER_TOKEN: Final = 25
"""Live tails of one token: a twentieth of the node's 500, so that no agent can use them up. A broken tail counts for up
to 30 s.
"""
HTTP_CONNECTIONS: Final = 768
"""HTTP connections: the 500 live tails of a node and 268 others, below the usual limit of 1,024 open files."""
BODIES_MB: Final = 128
"""Request bodies in memory, MiB; one token may use half. Without a limit, 16 unfinished bodies of one token took 566
MB.
"""

# budgets of an agent's token (role AGENT or LEAD); tokens of OWNER and ADMIN have no budget
TOKEN_MB_PER_MINUTE: Final = 16
"""MiB of entries and documents: 100 times what the hooks of one busy session write; folded in 20 s even if all words
are new.
"""
TOKEN_ENTRIES_PER_MINUTE: Final = 30_000
"""Entries and documents: folded in 4 s if they are small."""
TOKEN_WAITING_MB: Final = 4
"""MiB that wait to be folded: two large requests of a client. Folding them takes 4.5 s if all words are new, usually 1
s; other requests wait for the views for 5 s (``MIN_SEQ_WAIT_S``).
"""
TOKEN_REQUESTS: Final = 64
"""Requests of one token that are answered at the same time, streams included."""

# models
OLLAMA_DEFAULT_HOST: Final = "http://127.0.0.1:11434"
OLLAMA_CONTAINER_HOST: Final = "http://host.docker.internal:11434"
"""Ollama on the machine that runs the container (seed 1): used in a container if nothing listens on the default URL."""
OLLAMA_DEFAULT_MODEL: Final = "nomic-embed-text"
EMBED_DEFAULT_MODEL: Final = "text-embedding-3-small"
"""Default embedding model of an OpenAI-compatible endpoint (seed 5)."""
EMBED_TIMEOUT_S: Final = 15.0
EMBED_BATCH: Final = 64
"""Number of texts in one embedding call (contract §3)."""
EMBED_INPUT_BYTES: Final = 4_096

# relations (contract §7)
SIMILAR_THRESHOLD: Final = 0.8
"""Default smallest cosine of a ``similar`` relation."""
SIMILAR_EDGES: Final = 3
"""Maximum number of ``similar`` edges of a new entry."""
UPDATE_CANDIDATES: Final = 24
"""Number of nearest entries that are checked for updates, at any cosine; only the agent's own entries count. A check
takes about 0.2 ms.
"""
CONTRADICTION_CANDIDATES: Final = 10
"""Number of nearest entries that are checked for contradictions. It exceeds the three that are linked, because many
entries may be alike; a check takes about 0.2 ms.
"""
JUDGE_TIMEOUT_S: Final = 20.0
"""Seconds within which a language model must judge a borderline contradiction."""
LLM_TIMEOUT_S: Final = 120.0
"""Seconds for an answer of a chat model; a small one on a CPU reads 20,000 tokens in about a minute."""
LLM_DEFAULT_MODEL: Final = "gpt-4o-mini"
"""Default chat model of an OpenAI-compatible endpoint (seed 5)."""


PREFIX: Final = "CREW_JOURNAL_"
"""Prefix of the names of variables."""


@dataclass(frozen=True, slots=True)
class Env:
    """Annotates a setting that is read from the environment.

    Attributes:
        also: Further variables, which are read if the setting's own variable is absent.
        default: The default in words, if the value alone would not explain it.
    """

    also: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as its model declares it.

    Attributes:
        name: Name of the field.
        help: Help text in Markdown, from the docstring below the field.
        secret: Whether its value is never printed (``repr=False``).
        variables: Names of its variables, the setting's own variable first; empty if the environment is not read.
        default: The default in Markdown.
    """

    name: str
    help: str
    secret: bool
    variables: tuple[str, ...]
    default: str


def settings_of(model: type[BaseModel], also: str | None = None) -> tuple[Setting, ...]:
    """The settings of a model of variables; ``also`` is a second prefix under which each variable is read."""
    found = []
    for name, field in model.model_fields.items():
        env = next((mark for mark in field.metadata if isinstance(mark, Env)), Env())
        others = env.also if also is None else (f"{also}{name.upper()}",)
        words = env.default or default_text(field.default)
        default = ", else ".join((*(f"`{other}`" for other in env.also), words))
        text = " ".join((field.description or "").split())
        found.append(Setting(name, text, not field.repr, (f"{PREFIX}{name.upper()}", *others), default))
    return tuple(found)


def default_text(value: object) -> str:
    """A default in Markdown."""
    if value is None:
        return "none"
    if value == "":
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def environment_of(settings: Iterable[Setting]) -> dict[str, Any]:
    """The settings that the environment sets. The case of a name is ignored, and so are empty further variables."""
    there = {name.upper(): value for name, value in os.environ.items()}
    found: dict[str, Any] = {}
    for setting in settings:
        own, *others = setting.variables
        values = [there[own]] if own in there else [there[name] for name in others if there.get(name)]
        if values:
            found[setting.name] = values[0]
    return found


def _cache_home() -> Path:
    """``.cache`` of the checkout, used by ``make setup``, if Python runs from its ``.venv``; else the user's cache."""
    checkout = Path(sys.prefix).parent
    if (checkout / "deploy" / "install-nats").is_file() and (checkout / "schemas" / "settings.py").is_file():
        return checkout / ".cache"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "crew-journal"


class NodeSettings(BaseModel, use_attribute_docstrings=True):
    """Settings of the node itself."""

    data_dir: Annotated[Path, Env(default="`journal` in `~/.local/state/crew-journal`")] = Field(
        default_factory=own_journal
    )
    """Directory of all stored data: the streams, the views, the owner's token. If absent, the first of [these
    places](cli.md#which-journal) is used."""
    anchors: str = ""
    """Files outside the data directory to which every signed checkpoint of the journal is appended, separated by `:`. Keep
    them where those who can change the journal cannot write."""
    seal_s: float = Field(default=10.0, ge=0.0)
    """Seconds from a message to the seal that covers it; 0 seals nothing."""
    http: str = "127.0.0.1:9119"
    """`HOST:PORT` of HTTP. Port 0 picks a free one."""
    http_hosts: str = ""
    """Host names that requests may use in the `Host` header, separated by commas, for example behind a proxy. IP
    addresses are always accepted."""
    leaf: str | None = None
    """URL of a hub with which this node exchanges entries and documents while it can be
    reached ([leaves](cluster.md#a-laptop)).
    """
    leaf_token: str | None = Field(default=None, repr=False)
    """Token of the hub; it decides what is sent and what is taken over."""
    leaf_workspace: str = DEFAULT_WORKSPACE  # noqa: F405
    """The workspace that is exchanged, on both sides."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is logged: `debug`, `info`, `warning` or `error`. Without this variable, the level on a
    terminal is `warning`.
    """
    query_log: bool = True
    """Record every recall, query included, as `memory.searched`. If false, recalls have no receipt."""
    otel_content: bool = False
    """Put the texts of questions and of found memories into the spans that are sent to a receiver of OpenTelemetry
    ([operating.md](operating.md#opentelemetry)). Without it, spans have ids, counts and durations alone."""
    secrets: Literal["redact", "refuse", "keep"] = "redact"
    """What the node does with [credentials](#credentials) in a text to be stored: `redact` replaces them, `refuse`
    refuses the text with 422, `keep` stores it. The scrubber of a workspace has precedence.
    """
    cache_dir: Annotated[Path, Env(default="`.cache` of the checkout, else `~/.cache/crew-journal`")] = Field(
        default_factory=_cache_home
    )
    """Directory of downloaded model weights and of the nats-server. `XDG_CACHE_HOME` is respected outside a
    checkout."""

    @property
    def anchor_files(self) -> tuple[Path, ...]:
        """The anchors outside the data directory."""
        return tuple(Path(name) for name in self.anchors.split(os.pathsep) if name)

    @property
    def models_dir(self) -> Path:
        """Directory of embedded models, below the cache."""
        return self.cache_dir / "models"

    @property
    def nats_dir(self) -> Path:
        """Directory of nats-server binaries, below the cache."""
        return self.cache_dir / "nats"


class BrokerSettings(BaseModel, use_attribute_docstrings=True):
    """Settings of the broker."""

    nats: str | None = None
    """URL of a broker of your own, or the URLs of the servers of a cluster with commas between them. If absent, the node
    starts and supervises one."""
    nats_user: str | None = Field(default=None, repr=False)
    """User at that broker. Without a password, the user is sent as a token."""
    nats_password: str | None = Field(default=None, repr=False)
    """Password at that broker."""
    nats_creds: Path | None = None
    """Credentials file (JWT and seed, as `nsc` writes it) for that broker, instead of user and password."""
    nats_ca: Annotated[Path | None, Env(default="the authorities of the system")] = None
    """Certificates (PEM) of the authority of that broker's servers."""
    nats_cert: Path | None = None
    """Certificate (PEM) of this node, for a broker that verifies its clients."""
    nats_key: Path | None = None
    """Private key (PEM) of that certificate."""
    nats_server: Annotated[Path | None, Env(default="the newest on `PATH` and in the cache")] = None
    """Path of the nats-server binary to start; 2.10 or newer."""
    durability: Durability = "durable"
    """`durable`: flushed to disk before each acknowledgement. `interval`: flushed every 250 ms."""
    node: Annotated[str | None, Env(default="a node that runs alone")] = Field(
        default=None, pattern=r"^[a-z0-9][a-z0-9-]{0,31}$"
    )
    """Name of this node if several share the journal of `CREW_JOURNAL_NATS` ([cluster.md](cluster.md#several-nodes)):
    up to 32 of a-z, 0-9 and -."""
    replicas: Annotated[int | None, Env(default="those of the existing streams, else 1")] = Field(
        default=None, ge=1, le=5
    )
    """Replicas of the streams, 1 to 5. More than 1 needs a cluster of your own ([cluster.md](cluster.md))."""

    @property
    def nats_files(self) -> LoginFiles:
        """The files for the login at that broker."""
        files = (self.nats_creds, self.nats_ca, self.nats_cert, self.nats_key)
        return LoginFiles(*(None if file is None else str(file) for file in files))

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

    @model_validator(mode="after")
    def _needs_broker(self) -> Self:
        if self.node is not None and self.nats is None:
            raise ValueError("node needs nats: several nodes share a broker of your own")
        return self

    @field_validator("nats_creds", "nats_ca", "nats_cert", "nats_key")
    @classmethod
    def _check_file(cls, file: Path | None) -> Path | None:
        if file is not None and not file.is_file():
            raise ValueError(f"{file} is not a file")
        return file

    @field_validator("nats")
    @classmethod
    def _check_broker(cls, url: str | None) -> str | None:
        if url is None:
            return None
        address = broker_address(url)
        if address.user is not None:
            raise ValueError("contains a user, but nats_user or nats_password is set, too: give the user once")
        return address.url


class ModelSettings(BaseModel, use_attribute_docstrings=True):
    """Settings of models."""

    embedder: EmbedderKind = "auto"
    """Which model embeds: `openai`, `ollama`, `minilm`, `none`, or `auto`: the endpoint of
    `CREW_JOURNAL_EMBED_BASE_URL` if it is set, else the first of Ollama, MiniLM and none that works."""
    ollama_host: Annotated[str, Env(("OLLAMA_HOST",))] = OLLAMA_DEFAULT_HOST
    """URL of Ollama."""
    ollama_model: str = OLLAMA_DEFAULT_MODEL
    """Embedding model of Ollama."""
    embed_base_url: Annotated[str | None, Env(("CRAWBL_EMBED_BASE_URL",))] = None
    """URL of an OpenAI-compatible endpoint (`/embeddings`), such as `https://api.openai.com/v1`
    ([embeddings.md](embeddings.md#an-openai-compatible-endpoint))."""
    embed_api_key: Annotated[str | None, Env(("CRAWBL_EMBED_API_KEY",))] = Field(default=None, repr=False)
    """Key of that endpoint."""
    embed_model: Annotated[str, Env(("CRAWBL_EMBED_MODEL",))] = Field(
        default=EMBED_DEFAULT_MODEL, pattern=r"^[A-Za-z0-9._:/-]{1,89}$"
    )
    """Embedding model of that endpoint."""
    llm_model: Annotated[str | None, Env(("CRAWBL_CLASSIFY_MODEL",))] = None
    """Chat model that words learned rules ([consolidation.md](consolidation.md)) and classifies drawers
    ([palace.md](palace.md#classification)). Without this and the next variable, no text is sent to a chat model."""
    llm_base_url: Annotated[str | None, Env(("CRAWBL_LLM_BASE_URL",))] = None
    """URL of an OpenAI-compatible endpoint (`/chat/completions` with `json_schema`), such as
    `https://api.openai.com/v1`. If absent, the models are Ollama's. With a URL and no model, `gpt-4o-mini`."""
    llm_api_key: Annotated[str | None, Env(("CRAWBL_LLM_API_KEY",))] = Field(default=None, repr=False)
    """Key of that endpoint."""
    judge_model: str | None = None
    """Chat model of the same server that judges borderline contradictions. If absent, the rule alone decides."""
    heuristic_high: Annotated[str | None, Env(("CRAWBL_MEM_HEURISTIC_HIGH",))] = None
    """Minimum confidence with which the classifier of the palace decides a type alone. If absent, 0.8 without a chat
    model, else 999 (never). An invalid number counts as 999.
    """
    heuristic_low: Annotated[str | None, Env(("CRAWBL_MEM_HEURISTIC_LOW",))] = None
    """Minimum confidence with which the nearest centroid may decide the type. If absent, 0.5 without a chat model, else
    999.
    """
    similar_threshold: float = SIMILAR_THRESHOLD
    """Smallest cosine similarity of a `similar` relation, above 0 and at most 1. Any other value counts as 0.8."""


class DocumentSettings(BaseModel, use_attribute_docstrings=True):
    """Settings of memory documents."""

    memory_provider: str = "journal"
    """Where memory documents are kept: `journal`, `disk`, `http`, or `module:factory` of a provider of your own."""
    memory_provider_root: Path | None = None
    """Directory of the files, for `disk`. It must exist."""
    memory_provider_url: str | None = None
    """URL of the service, for `http`."""
    memory_provider_token: str | None = Field(default=None, repr=False)
    """Token for that service."""
    memory_file: Path | None = None
    """TOML file that sets the provider of individual workspaces."""


_UNITS_H: Final = {"m": 1 / 60, "h": 1.0, "d": 24.0}


def _hours(given: object) -> object:
    """``168h``, ``7d`` and ``90m`` as hours; a number is hours already."""
    if isinstance(given, str) and given.strip()[-1:] in _UNITS_H:
        return float(given.strip()[:-1]) * _UNITS_H[given.strip()[-1]]
    return given


Hours = Annotated[float, BeforeValidator(_hours)]
Weight = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
_WEIGHTS: Final = Weights()


class LayeredSettings(BaseModel, use_attribute_docstrings=True):
    """Salience, context budget, decay and episodes."""

    salience_enabled: bool = True
    """Rank memories by salience. If false, by relevance alone."""
    memory_salience_relevance: Weight = _WEIGHTS.relevance
    """Weight of the relevance to the query."""
    memory_salience_recency: Weight = _WEIGHTS.recency
    """Weight of the time since the last change or use."""
    memory_salience_confidence: Weight = _WEIGHTS.confidence
    """Weight of the confidence of a fact."""
    memory_salience_usage: Weight = _WEIGHTS.usage
    """Weight of the number of uses."""
    memory_salience_freshness: Weight = _WEIGHTS.freshness
    """Weight of the freshness of a fact."""
    memory_salience_halflife: Hours = RECENCY_HALF_LIFE_HOURS
    """Half-life of recency in hours; `90m`, `168h` and `7d` are read, too."""
    temporal_reasoning_enabled: bool = True
    """Let facts go stale. If false, freshness does not count."""
    context_budget_enabled: bool = True
    """Limit contexts to the budget below. If false, only the budget of a request limits them."""
    context_budget_tokens: int = TOTAL_DEFAULT
    """Tokens of a whole context."""
    context_system_tokens: int = SYSTEM_DEFAULT
    """Tokens of that budget that are reserved for system and safety instructions."""
    context_tokenizer: str | None = None
    """`module:function` that returns the number of tokens of a text. If absent, tokens are estimated."""
    memory_episodic_store: Literal["journal", "postgres", "redis", "dragonfly"] = "journal"
    """`journal` or `postgres`: all episodes are returned. `redis` or `dragonfly`: those within the time to live."""
    memory_episodic_ttl: Hours = Field(default=720.0, gt=0.0, allow_inf_nan=False)
    """Time to live of episodes in hours; `90m`, `168h` and `7d` are read, too."""

    @model_validator(mode="after")
    def _check_layered(self) -> Self:
        self.weights()
        self.budget()
        return self

    def weights(self) -> Weights:
        """The weights of salience; relevance alone if it is switched off."""
        if not self.salience_enabled:
            return Weights(1.0, 0.0, 0.0, 0.0, 0.0, self.memory_salience_halflife)
        return Weights(
            self.memory_salience_relevance,
            self.memory_salience_recency,
            self.memory_salience_confidence,
            self.memory_salience_usage,
            self.memory_salience_freshness if self.temporal_reasoning_enabled else 0.0,
            self.memory_salience_halflife,
        )

    def budget(self) -> Budget:
        """The budget of a context."""
        return Budget(self.context_budget_tokens, self.context_system_tokens)

    @property
    def episodic_ttl_hours(self) -> float | None:
        """Hours for which episodes are returned; None means for ever."""
        return self.memory_episodic_ttl if self.memory_episodic_store in ("redis", "dragonfly") else None


class LimitSettings(BaseModel, use_attribute_docstrings=True):
    """Limits of a node."""

    hot_index_mb: int = Field(default=512, ge=16)
    """Memory budget of all search indexes, MiB; at least 16. The index in use is kept even if it alone is larger."""
    duckdb_memory_mb: int = Field(default=512, ge=64)
    """Memory limit of DuckDB, MiB; at least 64."""
    tails_per_token: int = Field(default=TAILS_PER_TOKEN, ge=1)
    """Live streams that one token of one workspace may have open at once. A node allows 500 in all."""
    http_connections: int = Field(default=HTTP_CONNECTIONS, ge=8)
    """HTTP connections at once; at least 8. Beyond the limit, a new connection replaces the connection that has been
    idle for longest.
    """
    bodies_mb: int = Field(default=BODIES_MB, ge=64)
    """Request bodies in memory at once, MiB; at least 64. One token may use half."""
    token_mb_per_minute: int = Field(default=TOKEN_MB_PER_MINUTE, ge=0)
    """MiB of entries and documents that a token of role AGENT or LEAD may write a minute; 0 for no limit."""
    token_entries_per_minute: int = Field(default=TOKEN_ENTRIES_PER_MINUTE, ge=0)
    """Entries and documents that a token of role AGENT or LEAD may write a minute; 0 for no limit."""
    token_waiting_mb: int = Field(default=TOKEN_WAITING_MB, ge=0)
    """Maximum MiB that a token of role AGENT or LEAD has written and the views have not folded yet; also the maximum of
    one request; 0 for no limit.
    """
    token_requests: int = Field(default=TOKEN_REQUESTS, ge=0)
    """Requests of a token of role AGENT or LEAD that may be open at once, including live streams; 0 for no limit."""


class ClientSettings(BaseModel, use_attribute_docstrings=True):
    """Variables of the client and the command line; ``Settings`` does not have them."""

    url: Annotated[str | None, Env(default="the `up` of the data directory")] = None
    """URL of a running service."""
    config: Path = Path("~/.config/crew-journal/config.toml")
    """The configuration file."""
    context: Annotated[str | None, Env(default="`context` of that file")] = None
    """The context to use."""
    workspace: Annotated[str | None, Env(default="`default`")] = None
    """Workspace of commands and hooks, for a token of all workspaces."""
    token: Annotated[str | None, Env(default="the owner's token of the data directory")] = Field(
        default=None, repr=False
    )
    """Token to send."""


class Settings(LimitSettings, LayeredSettings, DocumentSettings, ModelSettings, BrokerSettings, NodeSettings):
    """Settings of a node; settings that are not passed are read from the environment."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    def __init__(self, **given: Any) -> None:
        super().__init__(**environment_of(NODE_SETTINGS) | given)


SECTIONS: Final = {
    model.__name__: settings_of(model, "CRUVERO_" if model is LayeredSettings else None)
    for model in (*reversed(Settings.__bases__), ClientSettings)
}
"""All variables, by the class that declares them; each class is a table in ``docs/settings.md``."""
CLIENT_SETTINGS: Final = SECTIONS[ClientSettings.__name__]
NODE_SETTINGS: Final = tuple(it for section in SECTIONS.values() if section is not CLIENT_SETTINGS for it in section)
