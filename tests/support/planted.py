"""600 entries of the types that rules are learned from, 40 of whose subjects recur, among entries about the same things."""

from __future__ import annotations

import random
from dataclasses import dataclass

SUBJECTS = 40
OCCURRENCES = 4
ENTRIES = 600
DAYS = 6
_SERVICES = (
    "checkout", "billing", "search", "gateway", "ledger", "mailer", "catalogue", "identity", "exports", "scheduler",
    "payments", "reports", "uploads", "inventory", "webhooks", "profile", "pricing", "shipping", "notifications", "audit",
)  # fmt: skip
_PROBLEMS = (
    "timed out", "was denied", "ran out of memory", "lost its connection", "returned stale data", "failed to start",
    "dropped messages", "rejected valid tokens", "filled the disk", "blocked the queue",
)  # fmt: skip
_CAUSES = (
    "the certificate had expired", "the index was missing", "a migration held the lock", "the cache was cold",
    "the rollback plan was missing", "the quota was exhausted", "two workers shared a port", "the clock had drifted",
    "the feature flag was stale", "the retry limit was zero", "the schema had changed", "DNS answered slowly",
    "the secret was rotated", "the pool was too small", "a backup was running", "the batch was too large",
)  # fmt: skip
_FORMS = (
    "The {service} service {problem} because {cause}",
    "{service} {problem} again: {cause}",
    "Run {n}: the {service} service {problem}, {cause}",
    "The {service} service {problem} on build {n} because {cause}",
)
_TYPES = ("peer.escalation", "summary.generated", "eval.regression_detected", "peer.escalation")


@dataclass(frozen=True)
class Planted:
    """An entry: what it says, its type, days before now, and its subject, -1 if it has none that recurs."""

    entry_id: str
    entry_type: str
    summary: str
    days_ago: int
    subject: int


def planted(seed: int = 7) -> list[Planted]:
    """The entries in random order; those that do not recur share service, problem or cause with others, never all three."""
    draw = random.Random(seed)
    every = [(service, problem, cause) for service in _SERVICES for problem in _PROBLEMS for cause in _CAUSES]
    draw.shuffle(every)
    said = [(subject, form) for subject in range(SUBJECTS) for form in range(OCCURRENCES)]
    said += [(-1, draw.randrange(len(_FORMS))) for _ in range(ENTRIES - len(said))]
    found = []
    for n, (subject, form) in enumerate(said):
        service, problem, cause = every[subject if subject >= 0 else n]
        summary = _FORMS[form].format(service=service, problem=problem, cause=cause, n=n)
        found.append(Planted(f"e{n}", draw.choice(_TYPES), summary, (n + form) % DAYS, subject))
    draw.shuffle(found)
    return found
