"""Reports of success and routine teach nothing; problems, conditions and instructions may."""

from __future__ import annotations

import pytest

from crew_journal.schemas.learning.consolidation import is_routine


@pytest.mark.parametrize(
    "text",
    [
        "Deployment of checkout completed successfully",
        "The nightly backup finished without errors",
        "Release 4.2 merged and deployed, no issues",
        "All 212 tests passed",
        "Nächtliche Sicherung erfolgreich abgeschlossen",
        "Sauvegarde terminée sans erreur",
        "Despliegue completado con éxito",
    ],
)
def test_a_report_of_success_is_routine(text: str) -> None:
    assert is_routine(text)


@pytest.mark.parametrize(
    "text",
    [
        "Load test refused because the staging quota is exhausted",
        "The backup finished, but the disk is full",
        "The migration completed only after a rollback",
        "Never deploy on Fridays",
        "The deployment was not completed",
        "Deploy of checkout denied because the rollback plan was missing",
        "Certificate of the gateway expires in May",
        "Die Sicherung ist fehlgeschlagen",
        "Searches take nine seconds",
        "デプロイが完了しました",
    ],
)
def test_a_problem_a_condition_or_an_instruction_is_not(text: str) -> None:
    assert not is_routine(text)
