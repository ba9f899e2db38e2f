"""Which entries a query finds by words that are not exactly theirs."""

from __future__ import annotations

import pytest
from support.recall import ANALYZER, extend_by, recorded

from crew_journal.schemas.text.analyzer import parts_of, tokens_of, with_named_months
from crew_journal.schemas.text.stop_words import foreign_language
from crew_journal.services.entries.filters import Phrase
from crew_journal.services.index.entry_index import HotIndex
from crew_journal.services.index.scope import RecallScope, ScopeKind
from crew_journal.services.recall.asking import query_of
from crew_journal.services.recall.recipes import RECIPES
from crew_journal.services.recall.search import RankedHit, search

EVERYTHING = RecallScope(ScopeKind.WORKSPACE)
COMMIT = "3f2a9bc1d0e4f5a6b7c8d9e0f1a2b3c4d5e6f708"


def found(texts: list[str], query: str, scope: RecallScope = EVERYTHING) -> list[RankedHit]:
    index = HotIndex("w1")
    extend_by(index, [recorded(seq, text) for seq, text in enumerate(texts, 1)])
    asked = query_of(query, ANALYZER, None, None, None)
    return search(index, scope, asked, RECIPES["lexical"], 5, explain=True)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("oom", "worker pod was OOMKilled twice"),
        ("killed", "worker pod was OOMKilled twice"),
        ("OOMKilled", "the pod was OOM killed"),
        ("memory error", "MemoryError in the importer"),
        ("E-4711", "ticket E-4711 is open"),
        ("E4711", "ticket E-4711 is open"),
        ("4711", "ticket E4711 is open"),
        ("billing.py", "fixed src/shop/billing.py today"),
        ("src/shop/billing.py", "fixed billing.py today"),
        ("3f2a9bc", f"deployed {COMMIT} to staging"),
        ("3f2a9bc1d0", f"deployed {COMMIT} to staging"),
        (COMMIT, "deployed 3f2a9bc to staging"),
        ("chekcout", "the checkout was denied"),
        ("kuberentes upgrade", "Kubernetes was upgraded"),
        ("authetication", "authentication fails"),
        ("Поискк", "поиск работает"),
        ("k8s", "the Kubernetes cluster is down"),
        ("kubernetes", "the k8s cluster is down"),
        ("cafe", "we met in the Café"),
        ("Café", "we met in the cafe"),
        ("Strasse", "die Straße ist gesperrt"),
        ("Welche Rechnung ist nicht bezahlt?", "die Rechnungen sind noch nicht da"),
        ("Welche Rechnungen sind nicht bezahlt?", "die Rechnung ist noch nicht da"),
        ("les factures de la semaine", "nous avons une facture pour le client"),
        ("какие ошибки были вчера", "это ошибка и её не было"),
        ("東京", "来週は東京都に行きます"),
        ("東京に行く", "来週は東京都に行きます"),
        ("猫", "私は猫が好きです"),
        ("ราคา", "ตรวจสอบราคาสินค้า"),
        ("हिन्दी", "यह हिन्दी में है"),
    ],
)
def test_an_entry_is_found_by_what_people_write(query: str, text: str) -> None:
    assert [hit.doc for hit in found([text, "lunch was late", "the printer is jammed"], query)][:1] == [0]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("E-4712", "ticket 4711 is open"),
        ("from", "form 27 is missing"),
        ("house", "the horse is ill"),
        ("cat", "the cart is full"),
        ("3f2a9bd", f"deployed {COMMIT} to staging"),
    ],
)
def test_another_number_or_another_word_is_no_typing_error(query: str, text: str) -> None:
    assert found([text], query) == []


def test_the_exact_word_ranks_above_its_correction() -> None:
    hits = found(["checkout is slow now", "lunch was late", "invoice is slow now"], "chekcout invoice")
    assert [hit.doc for hit in hits] == [2, 0]
    assert hits[0].explanation is not None
    assert hits[0].explanation.meant == {"chekcout": ("checkout",)}


def test_a_word_that_occurs_is_not_replaced() -> None:
    hits = found(["the chekcout sign", "the checkout sign"], "chekcout")
    assert [hit.doc for hit in hits] == [0]
    assert hits[0].explanation is not None
    assert hits[0].explanation.meant == {}


def test_a_word_outside_the_scope_neither_counts_nor_shows() -> None:
    index = HotIndex("w1")
    extend_by(index, [recorded(1, "the chekcout", agent_id="a2"), recorded(2, "the checkout"), recorded(3, "lunch")])
    asked = query_of("chekcout", ANALYZER, None, None, None)
    hits = search(index, RecallScope(ScopeKind.OWN, "a1"), asked, RECIPES["lexical"], 5)
    assert [hit.doc for hit in hits] == [1]


@pytest.mark.parametrize("date", ["2026-11-05", "2026-11-05T09:00:00Z", "2026-11"])
def test_a_date_in_figures_finds_the_entries_of_that_day_or_month(date: str) -> None:
    index = HotIndex("w1")
    days = ["2026-10-05", "2026-11-05", "2026-05-11", "2025-11-05"]
    extend_by(index, [recorded(seq, "moved", ts=f"{day}T09:00:00Z") for seq, day in enumerate(days, 1)])
    asked = query_of(f"what happened on {date}?", ANALYZER, None, None, None)
    assert [hit.doc for hit in search(index, EVERYTHING, asked, RECIPES["lexical"], 1)] == [1]


@pytest.mark.parametrize("number", ["2026-11-45", "12026-11", "2026-13", "2026-11-21-3", "v2026-11"])
def test_other_numbers_are_no_dates(number: str) -> None:
    assert with_named_months(number) == number


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Was ist in der Rechnung?", "de"),
        ("Où sont les factures de la semaine ?", "fr"),
        ("¿Dónde está el informe que me enviaron?", "es"),
        ("Onde estão os relatórios que você enviou para mim?", "pt"),
        ("Dove sono le fatture della settimana e perché non ci sono?", "it"),
        ("Waar zijn de rekeningen van het project?", "nl"),
        ("Var är fakturorna som jag skickade till dig?", "sv"),
        ("Hvor er fakturaerne, som jeg gav til dig, og hvad blev de til?", "da"),
        ("Gdzie jest raport, który mi się nie podoba?", "pl"),
        ("где отчёт и что это было?", "ru"),
        ("Rapor nerede ve bu neden yok?", "tr"),
        ("Missä raportti on ja miksi se ei ole siellä?", "fi"),
    ],
)
def test_a_text_shows_its_language_by_its_stop_words(text: str, code: str) -> None:
    language = foreign_language(tokens_of(text))
    assert language is not None
    assert language.code == code


@pytest.mark.parametrize(
    "text",
    [
        "the war of the die in Los Angeles",
        "Jane's cat can't sleep, so we're up",
        "kubectl get pod; go run; var la",
        "le mot juste is what he said",
        "who called Sie GmbH?",
        "SELECT id FROM t WHERE state = 'new'",
        "",
    ],
)
def test_english_and_code_show_no_other_language(text: str) -> None:
    assert foreign_language(tokens_of(text)) is None


def test_encoded_data_has_no_parts() -> None:
    assert parts_of("aGVsbG8Gd29YbGQaGVsbG8Gd29YbGQaGVsbG8Gd29YbGQ") == ()
    assert parts_of("a1" * 40) == ()


@pytest.mark.parametrize(
    ("text", "summary"),
    [("oom", "pod was OOMKilled"), ("東京都に", "来週は東京都に行きます"), ("障害", "DB障害が発生"), ("東京", "東京")],
)
def test_a_phrase_matches_a_part_in_stored_and_in_new_entries_alike(text: str, summary: str) -> None:
    phrase = Phrase.parse(text)
    assert phrase is not None
    assert phrase.matches(0, summary, {})
    assert set(phrase.terms) <= {*ANALYZER.terms(summary), *ANALYZER.further_terms(summary)}
