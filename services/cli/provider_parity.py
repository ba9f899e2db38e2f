"""``provider-parity``: whether a memory provider keeps the laws of the port."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from ...schemas.core.errors import VerificationFailed
from ..printable import safe
from .commands import Argument, Option
from .options import Json
from .output import show

if TYPE_CHECKING:
    from ..documents.laws import TrialReport


def provider_parity(
    provider: Annotated[
        str,
        Argument(
            metavar="URL|MODULE:FACTORY", help="An HTTP service, or a callable (ProviderScope) -> MemoryProvider."
        ),
    ],
    token: Annotated[
        str | None,
        Option("--token", envvar="CREW_JOURNAL_TOKEN", help="Token of an OWNER, for a URL."),
    ] = None,
    workspace: Annotated[
        str | None,
        Option(
            "--workspace",
            "-w",
            help="Workspace whose documents are overwritten. [default: a new one]",
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Run the parity suite of memory providers against a provider; exit code 6 if a law does not hold.

    The suite writes and forgets documents of agents and crews that it makes up, in a workspace of its own. A module is
    imported from the present directory or from where Python finds it.
    """
    import asyncio

    report = asyncio.run(_check(provider, token, workspace))
    shown = {"ok": not report.broken, "laws": [asdict(verdict) for verdict in report.verdicts]}
    show(shown, json_output, lambda _: print("\n".join(map(safe, report.lines()))))
    if report.broken:
        names = ", ".join(verdict.law for verdict in report.broken)
        raise VerificationFailed(
            f"the provider breaks {len(report.broken)} laws: {names}", hint="see docs/providers.md"
        )


async def _check(provider: str, token: str | None, workspace: str | None) -> TrialReport:
    from ..documents.adapters import StoreProvider
    from ..documents.choosing import factory_of
    from ..documents.http_provider import HttpStore, http_client
    from ..documents.laws import World, check

    chosen = {} if workspace is None else {"workspace_id": workspace}
    if not provider.startswith(("http://", "https://")):
        sys.path.insert(0, str(Path.cwd()))
        return await check(World(factory_of(provider), **chosen))
    if not (bearer := (token or "").strip()):
        raise click.BadParameter("a URL needs a token", param_hint="--token")
    async with http_client(provider, bearer) as http:
        return await check(World(lambda scope: StoreProvider(HttpStore(http), scope), **chosen))
