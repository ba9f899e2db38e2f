"""Derives from the declaration of a table its DDL, the columns that an older file lacks, and the columns of its digest."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import duckdb

from ...schemas.views.table import Column, Table


def ddl(table: Table[Any]) -> str:
    """The ``CREATE TABLE`` of a table that is not there."""
    return f'CREATE TABLE "{table}" ({", ".join(map(_definition, table.columns))})'


def _definition(column: Column) -> str:
    default = f" DEFAULT {column.default}" if column.default is not None else ""
    return f"{column.name} {column.type}{'' if column.nullable else ' NOT NULL'}{default}"


def make(con: duckdb.DuckDBPyConnection, tables: Iterable[Table[Any]], existing: Collection[str]) -> None:
    """Create tables; one of a former version, whose name is in ``existing``, gets the columns that it lacks."""
    for table in tables:
        if table.name not in existing:
            con.execute(ddl(table))
            continue
        columns = {name for name, *_ in con.execute(f'DESCRIBE "{table}"').fetchall()}
        for column in table.columns:
            if column.name not in columns:
                con.execute(
                    f'ALTER TABLE "{table}" ADD COLUMN {column.name} {column.type} DEFAULT {column.default or "NULL"}'
                )


def digested_parts(tables: Iterable[Table[Any]]) -> dict[Table[Any], tuple[str, ...]]:
    """Table → the names of the tables whose rows its digest covers; tables that only describe a layout are left out."""
    return {
        table: (str(table),) if table.rest is None else (str(table), str(table.rest))
        for table in tables
        if table.digested
    }


def digest_queries(tables: Iterable[Table[Any]]) -> dict[Table[Any], str]:
    """Table → the query whose rows its digest covers."""
    return {
        table: " UNION ALL ".join(f'SELECT {table.names} FROM "{part}"' for part in parts)
        for table, parts in digested_parts(tables).items()
    }
