"""The read contract between projections and queries: names and columns of the views.

Invariant: queries name tables and columns only through here or as documented here; a change is a new version of
the projection that owns the table.

Tables (DuckDB schema ``main``; ``doc`` = ``seq`` = stream sequence of the entry, everywhere):

- ``checkpoint(projection VARCHAR, version INTEGER, seq UBIGINT)``
- ``parkings(projection VARCHAR, version INTEGER, strikes BIGINT)``: the host's own (``consumers/host/leniency``).
- ``folded_stream(stream VARCHAR, made VARCHAR)``: one row, of which stream the views are (``consumers/host/provenance``).
- ``admitted(k0 UBIGINT, k1 UBIGINT, content BLOB, seq UBIGINT)``: first sequence of every (workspace, id).
- ``journal_entries``: every admitted entry, appended in order of ``seq``: ``seq UBIGINT``, the VARCHARs ``id,
  workspace_id, crew_id, agent_id, mission_id, trace_id, span_id``, ``ts_ms BIGINT``, the VARCHARs ``entry_type,
  severity, priority`` (when emitted)``, actor_type, actor_id, summary, payload, refs`` (JSON text)``,
  data_subject_id, supersedes`` (JSON list of ids), ``valid_ms BIGINT``, ``schema_version INTEGER``, ``run_id VARCHAR``
  (``payload.run_id`` if a string), ``control BOOLEAN``, ``embeddable BOOLEAN`` (``rules/embed_policy`` in force), ``words
  INTEGER`` (tokens of summary and payload strings, stop words included), ``published_ms BIGINT``, ``size INTEGER``.
- ``embed_policies(workspace_id VARCHAR, policy INTEGER, seq UBIGINT)``: the version of the embed policy in force where a
  reindex set one (``seq`` its event's); elsewhere the first.
- ``postings(ws UBIGINT, term UBIGINT, doc UBIGINT, tf USMALLINT, dl USMALLINT)`` sorted by (ws, term, doc) in sealed
  runs, and ``postings_tail`` of the same shape, unsorted; ``ws`` = ``ids.hash64(workspace_id)``, ``term`` = the
  analyser's key, ``dl`` = number of indexed tokens of the document.
- ``postings_runs(first_doc, last_doc, size UBIGINT)``: the sealed runs; layout only.
- ``journal_embeddings``: one row per (entry, model): ``key UBIGINT`` (hash of both), ``entry_seq UBIGINT, entry_id,
  workspace_id, model VARCHAR, dim INTEGER, vector BLOB`` (``4 * dim`` bytes)``, text_hash VARCHAR, indexed_at BIGINT``
  (of this model)``, seq UBIGINT`` (the fact's).
- ``memory_importance``: one row per (workspace, entry) that has had a vector, was referenced or got another priority:
  ``key UBIGINT`` (hash of both), ``workspace_id, entry_id VARCHAR, entry_seq UBIGINT, entry_type, severity VARCHAR``;
  ``priority VARCHAR`` (live), ``indexed_at BIGINT`` (ms, its first vector of any model; NULL with everything that follows
  from it while there is none), ``base DOUBLE`` (of the live priority: where the next decay starts), ``importance_score
  DOUBLE`` (as of the last decay), ``reference_count BIGINT, last_referenced_at BIGINT`` (ms).
- ``memory_decays(workspace_id VARCHAR, due_ms, decayed BIGINT, seq UBIGINT)``: the last decay of each workspace, how many
  rows it went over, and its tick.
- ``memory_sweeps(workspace_id, sweep VARCHAR, due_ms BIGINT, tick_seq UBIGINT, ticked_ms, finished_due_ms BIGINT,
  finished_seq UBIGINT, finished_ms BIGINT, counts, error VARCHAR)``: the last tick and the last finish of each sweep, NULL
  where there was none; ``due_ms`` is what the tick says, ``ticked_ms`` the broker's time of it; ``counts`` is JSON text.
- ``conversation_turns``: one row per entry of a conversation type (``consumers/folds/turn_columns``): ``ws, doc UBIGINT``,
  ``flags UTINYINT`` (``rules/turns``)``, pieces BLOB`` (uint16 ids of its word pieces)``, first_passage USMALLINT``,
  ``days BLOB`` (pairs of int32: first and last day of each interval named).
- ``entry_token_bits``: one row per (entry, model): ``key UBIGINT, entry_seq UBIGINT, entry_id, workspace_id, model
  VARCHAR, quantiser INTEGER, dim INTEGER, bits BLOB`` (``dim / 8`` bytes a token)``, first_passage USMALLINT, seq
  UBIGINT`` (the fact's).
- ``embeddings_active(workspace_id, model, embedder VARCHAR, dim INTEGER, seq UBIGINT)``: the last activation of each
  workspace, ``_system`` for the default.
- ``memory_relations(workspace_id, src_entry_id, dst_entry_id, relation VARCHAR, weight DOUBLE, state VARCHAR, src_seq,
  dst_seq UBIGINT, crew_id, reason VARCHAR, created_at BIGINT, seq UBIGINT, authority
  UTINYINT, key UBIGINT)``: one row per (workspace, pair, relation).
  ``relation`` is similar or contradicts (symmetric: one row a pair, ``src`` the newer entry) or supports (rule → evidence);
  ``state`` derived, proposed, asserted or retracted (the edge does not count); ``weight`` the cosine of similar, the
  confidence of a proposed contradicts, else 1.0 or as asserted; ``dst_seq`` NULL where the event did not say (evidence
  of a rule); ``crew_id`` that of both entries if a reactor found them, else the assertion's; ``created_at`` the broker's
  time of the edge's first event, ms; ``seq`` of the event that made the row what it is; ``authority`` whose word that is
  (``rules/relations``: 0 a reactor, 1 an agent, 2 an operator); ``key`` hash of its name.
- ``agents(workspace_id, agent_id, crew_id VARCHAR, memory_walk_depth INTEGER, settings VARCHAR`` (JSON text)``,
  registered_ms, updated_ms BIGINT, seq UBIGINT)`` and ``crews(workspace_id, crew_id, settings, registered_ms, updated_ms,
  seq)``: the last registration of each.
- ``embedding_models(model, embedder, state VARCHAR, dropped_seq, seq UBIGINT)``: ``state`` as in ``ModelState``;
  ``dropped_seq`` is the last drop (0 if none): what is filled after it is filled anew; ``seq`` the last decision.
- ``nudges_offered(workspace_id, agent_id, session_id, kind VARCHAR, offered_ms BIGINT, seq UBIGINT)``: the first offer of
  each kind to each session of an agent.
- ``workspace_settings(workspace_id VARCHAR, cost_nudge_usd DOUBLE, settings VARCHAR`` (JSON text)``, seq UBIGINT)``: the
  last configuration of each workspace that has one.
- ``dead_letters(projection VARCHAR, version INTEGER, seq UBIGINT, subject, reason VARCHAR, parked_ms BIGINT, state
  VARCHAR, workspace_id VARCHAR)``: ``state`` is parked, retried or discarded; ``operating.status.LETTERS`` adds folded.
- ``memory_health_snapshots``: one row per (workspace, crew, day), crew NULL for the workspace as a whole: ``workspace_id,
  crew_id, snapshot_date VARCHAR, measured_at BIGINT`` (ms)``, freshness, coverage, coherence, efficiency, reachability,
  score DOUBLE, band VARCHAR``, the metrics and the score again as ``legacy_…``, ``reasons, next_step, counts VARCHAR``
  (JSON list, text, JSON object)``, model VARCHAR, rules INTEGER, seq UBIGINT``.
- ``tokens(token_id, sha256, role, workspace_id, crew_id, agent_id, label VARCHAR, created_ms, revoked_ms BIGINT,
  nats_bcrypt, may_publish, speaks_for VARCHAR`` (lists, joined by blanks)``, expires_ms BIGINT)``
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

ENTRIES: Final = "journal_entries"
EMBED_POLICIES: Final = "embed_policies"
POSTINGS: Final = "postings"
POSTINGS_TAIL: Final = "postings_tail"
EMBEDDINGS: Final = "journal_embeddings"
TURNS: Final = "conversation_turns"
TOKEN_BITS: Final = "entry_token_bits"
IMPORTANCE: Final = "memory_importance"
DECAYS: Final = "memory_decays"
SWEEPS: Final = "memory_sweeps"
NUDGES_OFFERED: Final = "nudges_offered"
WORKSPACE_SETTINGS: Final = "workspace_settings"
RELATIONS: Final = "memory_relations"
AGENTS: Final = "agents"
CREWS: Final = "crews"
EMBEDDING_MODELS: Final = "embedding_models"
HEALTH_SNAPSHOTS: Final = "memory_health_snapshots"


class ModelState(StrEnum):
    """What is decided about an embedding model.

    ``activated``: recall was told to use it, and nobody asked to fill it beside another; ``added``: it is filled, active
    or not; ``dropped``: it has no vectors and gets none.
    """

    ACTIVATED = "activated"
    ADDED = "added"
    DROPPED = "dropped"


# names of the projections that own them, for checkpoints and ``min_seq``
ADMISSION_PROJECTION: Final = "admission"
DECODE_STAGE: Final = "decode"
BEFORE_VIEWS: Final = (DECODE_STAGE, ADMISSION_PROJECTION)
"""Who refuses a message for all views: what these park is in none of them."""
ENTRIES_PROJECTION: Final = "entries"
FULLTEXT_PROJECTION: Final = "fulltext"
VECTORS_PROJECTION: Final = "vectors"
ACTIVATIONS_PROJECTION: Final = "activations"
IMPORTANCE_PROJECTION: Final = "importance"
SWEEPS_PROJECTION: Final = "sweeps"
NUDGES_PROJECTION: Final = "nudges"
RELATIONS_PROJECTION: Final = "relations"
AGENTS_PROJECTION: Final = "agents"
TURNS_PROJECTION: Final = "turns"
TOKEN_BITS_PROJECTION: Final = "token_bits"
HEALTH_PROJECTION: Final = "health"

ENTRY_COLUMNS: Final = (
    "seq",
    "id",
    "workspace_id",
    "crew_id",
    "agent_id",
    "mission_id",
    "trace_id",
    "span_id",
    "ts_ms",
    "entry_type",
    "severity",
    "priority",
    "actor_type",
    "actor_id",
    "summary",
    "payload",
    "refs",
    "data_subject_id",
    "supersedes",
    "valid_ms",
    "schema_version",
)
"""What a reader gets of an entry; ``payload``, ``refs`` and ``supersedes`` are JSON text."""
