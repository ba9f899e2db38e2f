"""Entities found by what they are: after their names and aliases, above a threshold, and marked as such."""

from __future__ import annotations

from pathlib import Path

from support.embedding import until
from support.minilm import minilm_cache
from support.running import running_node

from crew_journal.services.client import AsyncCrewJournal

FACTS = (
    ("postgres-primary", "hosts", "orders database", "server"),
    ("Alice Smith", "leads", "billing team", "person"),
    ("nginx-edge", "terminates", "TLS", "server"),
)


async def until_found(client: AsyncCrewJournal, said: str, entity: str) -> float:
    """Wait until a description finds an entity by meaning; the cosine."""
    found: list[float] = []

    async def by_meaning() -> bool:
        answer = await client.kg_query(said)
        if answer.found_by == "meaning" and answer.entity == entity and answer.similarity is not None:
            found.append(answer.similarity)
        return bool(found)

    await until(by_meaning, f"{entity} to be found by {said!r}")
    return found[0]


async def test_an_entity_is_found_by_its_name_then_an_alias_then_by_what_is_meant(tmp_path: Path) -> None:
    node = running_node(tmp_path, embedder="minilm", cache_dir=minilm_cache().parent)
    async with node as runtime, AsyncCrewJournal(runtime.http_url, runtime.owner_token) as client:
        made = [await client.kg_add(*fact, subject_type=kind) for *fact, kind in FACTS]
        named = await client.kg_entity("postgres-primary", aliases=["main database"])
        assert (await client.kg_query("Postgres-Primary", min_seq=named.seq)).found_by == "name"
        alias = await client.kg_query("main database")
        assert (alias.entity, alias.found_by, alias.similarity) == ("postgres-primary", "alias", None)

        assert 0.4 <= await until_found(client, "the database host", "postgres-primary") <= 1.0
        [fact] = (await client.kg_query("the database host")).results
        assert (fact.subject, fact.predicate, fact.object) == FACTS[0][:3]

        unknown = await client.kg_query("guitar lessons")
        assert (unknown.entity, unknown.found_by, unknown.count) == ("guitar lessons", None, 0)
        past = await client.kg_query("the database host", as_of_seq=str(made[0].seq))
        assert past.found_by is None, "what was embedded later says nothing of the past"
