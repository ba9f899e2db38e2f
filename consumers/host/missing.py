"""Finds missing tables of a projection, for example dropped by hand; the projection is then folded again."""

from __future__ import annotations

import structlog

from ..projection import Projection
from .admission import AdmissionView

_log = structlog.get_logger(__name__)


def has_lost_tables(projection: Projection | type[AdmissionView], existing: frozenset[str]) -> bool:
    """Whether tables that a projection has made are gone."""
    missing = sorted({table.name for table in projection.tables} - existing)
    if missing:
        _log.error("views.table_missing", projection=projection.name, tables=missing)
    return bool(missing)
