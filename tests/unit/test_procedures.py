"""Which steps of runs are proposed as a procedure."""

from __future__ import annotations

from Stemmer import Stemmer

from crew_journal.schemas.learning.consolidation import keys_by_word
from crew_journal.schemas.learning.procedures import RunOfSteps, is_known, procedures_in
from crew_journal.schemas.text.analyzer import Analyzer

KEYS = keys_by_word(Analyzer(Stemmer))
RELEASE = (
    "Freeze the release branch {n}",
    "Write the changelog of version {n}",
    "Tag the commit and sign build {n}",
    "Announce version {n} to customers",
)


def run(n: int, *steps: str, ended_well: bool = True, summary: str = "Release {n} is out") -> RunOfSteps:
    by = ("agent:ada", "agent:bo")[n % 2]
    return RunOfSteps(f"r{n}", summary.format(n=n), by, n, ended_well, tuple(step.format(n=n) for step in steps))


def with_detours(n: int) -> RunOfSteps:
    """A release with a step of its own between each two."""
    return run(n, *(text for at, step in enumerate(RELEASE) for text in (step, f"{'abcd'[at] * 5} {'wxyz'[n] * 6}")))


def test_steps_that_three_good_runs_share_are_a_procedure_without_what_differs() -> None:
    [procedure] = procedures_in([with_detours(n) for n in range(3)], KEYS)
    assert procedure.steps == (
        "Freeze the release branch …",
        "Write the changelog of version …",
        "Tag the commit and sign build …",
        "Announce version … to customers",
    )
    assert (procedure.title, procedure.evidence) == ("Release … is out", ("r0", "r1", "r2"))
    assert (procedure.days, procedure.publishers) == (3, ("agent:ada", "agent:bo"))


def test_two_runs_other_orders_and_two_steps_are_no_procedure() -> None:
    assert procedures_in([with_detours(n) for n in range(2)], KEYS) == []
    shuffled = [run(0, *RELEASE), run(1, *reversed(RELEASE)), run(2, RELEASE[1], RELEASE[3], RELEASE[0], RELEASE[2])]
    assert procedures_in(shuffled, KEYS) == []
    assert procedures_in([run(n, *RELEASE[:2]) for n in range(5)], KEYS) == []


def test_steps_that_failed_runs_took_as_well_are_no_procedure() -> None:
    good = [with_detours(n) for n in range(3)]
    failed = [run(n, *RELEASE, ended_well=False) for n in (3, 4)]
    assert procedures_in([*good, *failed], KEYS) == []
    other = [run(n, "Reboot the lab machine", "Order a new disk", ended_well=False) for n in (3, 4)]
    assert len(procedures_in([*good, *other], KEYS)) == 1


def test_two_kinds_of_runs_give_two_procedures() -> None:
    restore = ("Stop the writer", "Copy the newest backup {n}", "Compare the checksums", "Start the writer again")
    runs = [run(n, *RELEASE) for n in range(3)] + [run(n, *restore, summary="Restored {n}") for n in range(3, 7)]
    assert [len(one.evidence) for one in procedures_in(runs, KEYS)] == [4, 3]


def test_a_procedure_with_most_steps_of_a_proposed_one_is_known() -> None:
    [procedure] = procedures_in([run(n, *RELEASE) for n in range(3)], KEYS)
    assert is_known(procedure, [procedure.steps], KEYS)
    assert is_known(procedure, [procedure.steps[:3]], KEYS)
    assert not is_known(procedure, [("Stop the writer", "Copy the newest backup", "Start the writer")], KEYS)
