"""``doctor``: whether this machine and this journal are well, and the next step where they are not.

Invariant: a check changes nothing and starts nothing; each says ok, warn or fail, and what to do. The exit code is 1 if
anything failed.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from .groups import grouped
from .options import Json, Where, settings_from
from .output import emit, safe


@grouped
def doctor(
    http: Annotated[str | None, typer.Option("--http", help="HOST:PORT that `up` would use.")] = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Check python, nats-server, disk, data directory, port, embedders and a running journal; says what to do."""
    from .checks import Verdict, run_checks

    findings = run_checks(settings_from(data_dir=where.data_dir, http=http), where)
    failed = any(finding.verdict is Verdict.FAIL for finding in findings)
    if json_output:
        emit({"ok": not failed, "checks": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            print(f"{finding.verdict.value:<4}  {finding.check:<14}  {safe(finding.found)}")
            if finding.next_step:
                print(f"      {'':<14}  → {safe(finding.next_step)}")
    raise typer.Exit(int(failed))
