"""``recall``: what the crew remembers about a question.

Invariant: the answer is printed as it was ranked, with what it is worth knowing about it: recipe, model, sequence, and
whether an arm was missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from ...schemas.operations.recall import RENDER
from .fields import as_options
from .groups import grouped
from .options import Embedder, Json, MinSeq, Where, Workspace
from .words import words_of

WORDS: Final = {name: word for name, word in words_of(RENDER).items() if name != "asked_at"}
"""The command asks now, so it has no option for the time."""


@grouped
def recall(
    query: Annotated[str, typer.Argument(help="The question.")],
    k: Annotated[int, typer.Option("--k", "-k", help="Hits, 1 to 50.")] = 5,
    scope: Annotated[
        str | None,
        typer.Option("--scope", help="own, crew_shared or workspace; by the token's role if left out."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", help="Agent whose entries to search, for OWNER and ADMIN.")
    ] = None,
    crew: Annotated[
        str | None, typer.Option("--crew", help="Crew whose entries to search, for OWNER and ADMIN.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            help="conversational (default where chat is in scope), conversational-static, robust, rrf, dense or lexical.",
        ),
    ] = None,
    render: Annotated[bool, typer.Option("--render", help="Print the hits as a block of text for a prompt.")] = False,
    max_chars: Annotated[
        int | None,
        typer.Option("--max-chars", help="Characters of the block, wrapper included; 2000 if left out. With --render."),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode", help="search, or inject: only what has enough evidence for a prompt (the default of --render)."
        ),
    ] = None,
    walk_depth: Annotated[
        int | None,
        typer.Option("--walk-depth", min=0, max=1, help="Hops along similar edges; the agent's default if left out."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the rank and score in each arm, and the share of each rule.")
    ] = False,
    used: Annotated[
        bool, typer.Option("--used", help="Record that the hits reach a prompt: they count as used.")
    ] = False,
    embedder: Embedder = None,
    min_seq: MinSeq = None,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Recall what was written about a question, best first."""
    if max_chars is not None and not render:
        raise typer.BadParameter("goes with --render", param_hint="--max-chars")
    from ...schemas.settings import RECALL_K_DEFAULT, RECALL_K_MAX
    from .connection import client
    from .output import emit, plain, say

    if not 1 <= k <= RECALL_K_MAX:
        say(f"-k is 1 to {RECALL_K_MAX}; {k} counts as {RECALL_K_DEFAULT}")
    asked = {
        "k": k, "scope": scope, "agent_id": agent, "crew_id": crew, "recipe": recipe, "min_seq": min_seq,
        "walk_depth": walk_depth, "workspace_id": workspace, "mode": mode,
    }  # fmt: skip
    with as_options(WORDS), client(where, embedder=embedder or "auto") as journal:
        given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        if render:
            answer = plain(journal.render(query, explain=explain, max_chars=max_chars, **given))
        else:
            answer = plain(journal.recall(query, explain=explain, **given))
        if used and answer.get("receipt"):
            journal.used(answer["receipt"])
    if json_output:
        emit(answer)
    elif render:
        print_render(answer)
    else:
        print_recall(answer, explain=explain)


def print_render(answer: Mapping[str, Any]) -> None:
    """The block on stdout as it is, what else is to be said of it on stderr."""
    from .output import safe, say

    if answer["text"]:
        print(answer["text"])  # made of printable characters and its own line breaks alone
    else:
        say("nothing has enough evidence" if answer["no_evidence"] else "nothing fits into the block")
    say(
        f"{len(answer['hits'])} hits, {answer['omitted']} left out, {answer['redacted']} redacted; "
        f"recipe {safe(answer['recipe'])}, model {safe(answer['model'] or 'none')}, view_seq {answer['view_seq']}"
    )
    if answer.get("degraded"):
        say(f"degraded: {safe(answer['degraded'])} (see `crew-journal status`)")


def print_recall(answer: Mapping[str, Any], *, explain: bool = False) -> None:
    """Each hit on stdout, what else is to be said of them on stderr."""
    from .output import age_of, safe, say, who_of

    hits = answer["hits"]
    if not hits:
        say("nothing was found")
    for number, hit in enumerate(hits, 1):
        score = f"{'via ' if hit.get('via') else ''}{hit['score']:.3f}"
        print(safe(f"#{number}  {score}  {age_of(hit)}  {hit['entry_type']}  {who_of(hit)}  {hit['entry_id']}"))
        print(f"    {safe(hit['summary'])}")
        if hit.get("confidence") is not None:
            print(f"    {hit['confidence']:.2f} sure: {safe(hit['reason'])}")
        if explain and hit.get("explain"):
            print(f"    {_explained(hit['explain'])}")
    say(
        f"recipe {safe(answer.get('recipe'))}, model {safe(answer.get('model') or 'none')}, "
        f"view_seq {answer.get('view_seq')}"
    )
    if answer.get("degraded"):
        say(f"degraded: {safe(answer['degraded'])} (see `crew-journal status`)")


def _explained(value: Any) -> str:
    from .output import safe

    if isinstance(value, Mapping):
        said = ((safe(name), _explained(part)) for name, part in value.items() if part is not None)
        return ", ".join(f"{name} {text}" for name, text in said if text)  # an arm that did not find it says nothing
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list):
        return "[" + ", ".join(_explained(part) for part in value) + "]"
    return safe(value)
