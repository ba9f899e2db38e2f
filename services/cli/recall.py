"""``recall``: what the crew remembers about a question.

Invariant: hits are printed in their ranking, with recipe, model, sequence, and a note if an arm was missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

import click

from ...schemas.core.limits import RECALL_K_MAX
from ...schemas.recall.evidence import confidence_word
from ...schemas.recall.operations import NO_VECTORS, RENDER
from ..printable import safe
from .commands import Option
from .connection import client
from .options import Embedder, Fields, Json, Where
from .output import age, counted, print_folded, say, shares, show, who_of

_MARGIN: Final = "    "
_VALID: Final = {"valid_from": "from", "valid_to": "to"}
_EMPTY_BLOCK: Final = {
    "ok": "no hit fits into the block",
    "nothing": "nothing has enough evidence",
    "unavailable": "memory could not be searched",
}


def recall(
    fields: Annotated[dict[str, Any], Fields(RENDER, without=("asked_at", "mode"))],
    brief: Annotated[
        bool, Option("--brief", help="Print the short text that a model gets: ids, dates, certainty, texts.")
    ] = False,
    render: Annotated[bool, Option("--render", help="Print the hits as a block of text for a prompt.")] = False,
    used: Annotated[bool, Option("--used", help="Record that the hits reach a prompt: they count as used.")] = False,
    mode: Annotated[
        str | None, Option("--mode", help="search, or inject: only what has evidence (the default of --render).")
    ] = None,
    embedder: Embedder = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Recall what is relevant to a question, best first."""
    if brief and render:
        raise click.BadParameter("does not go with --render", param_hint="--brief")
    if "max_chars" in fields and not render:
        raise click.BadParameter("goes with --render", param_hint="--max-chars")
    if not 1 <= fields.get("k", 1) <= RECALL_K_MAX:
        raise click.BadParameter(f"is an integer from 1 to {RECALL_K_MAX}", param_hint="-k")
    if mode is not None:
        fields["mode"] = mode
    with client(where, embedder=embedder or "auto") as journal:
        ask = journal.render if render else journal.recall_brief if brief else journal.recall
        answer = ask(**fields)
        if used and answer.receipt is not None:
            journal.used(answer.receipt)
    printer = print_render if render else print_brief if brief else print_recall
    show(answer, json_output, partial(printer, past="as_of" in fields))


def print_brief(answer: Mapping[str, Any], *, past: bool = False) -> None:
    """The text on stdout as it is."""
    print(safe(answer["text"], keep="\n"))
    _print_receipt(answer, past=past)


def print_render(answer: Mapping[str, Any], *, past: bool = False) -> None:
    """The block on stdout as it is, the rest of the answer on stderr."""
    if answer["text"]:
        print(safe(answer["text"], keep="\n"))
    else:
        say(_EMPTY_BLOCK[answer["status"]])
    hits = counted(len(answer["hits"]), "hit")
    _print_origin(answer, f"{hits}, {answer['omitted']} left out, {answer['redacted']} redacted; ", past=past)


def print_recall(answer: Mapping[str, Any], *, past: bool = False) -> None:
    """Each hit on stdout, with its explanation if it has one; the rest of the answer on stderr."""
    if not answer["hits"]:
        say(_EMPTY_BLOCK["unavailable"] if answer.get("degraded") == NO_VECTORS else "nothing was found")
    for number, (hit, share) in enumerate(zip(answer["hits"], shares(answer["hits"]), strict=True), 1):
        print(safe(f"#{number}  {age(hit['age_seconds'])}  {_what(hit)}"))
        print_folded(hit["summary"], _MARGIN)
        print_folded(_why(hit, share), _MARGIN)
        if standing := hit.get("standing"):
            by = f" by {standing['by']}" if standing["by"] else ""
            why = f": {standing['reason']}" if standing["reason"] else ""
            print_folded(f"{standing['state']}{by}, {standing['at']}{why}", _MARGIN)
        if hit.get("repeats"):
            print(f"{_MARGIN}and {hit['repeats']} more that {'says' if hit['repeats'] == 1 else 'say'} the same")
        if hit.get("explain"):
            print_folded(f"score {share} of the best, {_explained(hit['explain'])}", _MARGIN)
    _print_origin(answer, "", past=past)


def _what(hit: Mapping[str, Any]) -> str:
    """Type, author and the id that ``used`` takes; of another memory also where it is, as ``forget`` takes it."""
    if document := hit.get("document"):
        return f"document {document['file']}  {who_of(hit)}  {hit['entry_id']}"
    if drawer := hit.get("drawer"):
        return f"drawer:{drawer['drawer_id']}  {who_of(hit)}  {hit['entry_id']}"
    if fact := hit.get("fact"):
        until = "".join(f" {word} {fact[name]}" for name, word in _VALID.items() if fact[name])
        return f"fact:{fact['fact_id']}{until}  {who_of(hit)}  {hit['entry_id']}"
    return f"{hit['entry_type']}  {who_of(hit)}  {hit['entry_id']}"


def _print_origin(answer: Mapping[str, Any], counts: str, *, past: bool) -> None:
    model = safe(answer["model"] or "none")
    awaiting = answer.get("awaiting_vectors")
    lacking = f", {counted(awaiting, 'entry waits for its', 'entries wait for their')} vector" if awaiting else ""
    say(f"{counts}recipe {safe(answer['recipe'])}, model {model}, view_seq {answer['view_seq']}{lacking}")
    _print_receipt(answer, past=past)


def _print_receipt(answer: Mapping[str, Any], *, past: bool) -> None:
    if answer["receipt"] is not None:
        say(f"receipt {answer['receipt']}")
    elif past:
        say("no receipt: a recall as of a past moment is not recorded")
    else:
        say("no receipt: the broker is not available, or CREW_JOURNAL_QUERY_LOG is false")
    if answer.get("degraded"):
        say(f"degraded: {safe(answer['degraded'])} (see `crew-journal status`)")


def _why(hit: Mapping[str, Any], share: str) -> str:
    """Why it is a hit: by which relation, or with which confidence and reason, else its score."""
    if via := hit.get("via"):
        return f"via {via['entry_id']} ({via['relation']}, weight {via['weight']:.2f})"
    if hit.get("confidence") is None:
        return f"score {share} of the best"
    return f"{confidence_word(hit['confidence'])} (confidence {hit['confidence']:.2f}): {hit['reason']}"


def _explained(value: Any) -> str:
    if isinstance(value, Mapping):
        parts = (
            (safe(name), _explained(part))
            for name, part in value.items()
            if part not in (None, 0)
            and not (
                name == "score" and part > 1  # of words: it has no upper end, so its rank says more
            )
        )
        return ", ".join(f"{name} {text}" for name, text in parts if text)  # an arm that did not find it has no text
    return f"{value:.3f}" if isinstance(value, float) else safe(value)
