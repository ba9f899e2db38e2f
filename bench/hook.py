"""What a hook of a coding agent takes above starting Python, and what the forwarder of tools adds to a call.

Both run as processes of their own on a real ``up`` with embedder ``none``. A hook and its baseline, the bare import of
``json`` and ``http.client``, run in turns, and so do a call through the forwarder and one to the service.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from support.processes import COMMAND, Stack

from bench.corpus import Corpus
from bench.figures import MS, Report, at_most, median, percentile
from bench.journals import prepare
from bench.watching import wait_folded

P50_MS: Final = 50.0
P95_MS: Final = 120.0
ADDED_MS: Final = 3.0
BARE: Final = [sys.executable, "-c", "import json, http.client"]
_HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _cpu() -> float:
    """CPU seconds of the processes that ended; unlike the clock, it does not depend on what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _process(command: list[str], text: str, env: Mapping[str, str]) -> bytes:
    return subprocess.run(command, input=text.encode(), env=env, capture_output=True, check=True).stdout


def _hooks(report: Report, folder: Path, corpus: Corpus, env: Mapping[str, str], rounds: int) -> None:
    transcript = folder / "session.jsonl"
    session_fields = {"session_id": "bench", "transcript_path": str(transcript), "cwd": str(folder)}
    queries = corpus.queries(rounds)
    bare: list[float] = []
    for event in ("SessionStart", "UserPromptSubmit", "Stop"):
        above, cpu, failed = [], [], 0
        for turn, prompt in enumerate(queries):
            with transcript.open("a") as lines:
                message = {"role": "user", "content": prompt}
                lines.write(json.dumps({"type": "user", "uuid": f"{event}-{turn}", "message": message}) + "\n")
            body = json.dumps({**session_fields, "hook_event_name": event, "prompt": prompt})
            before = _cpu()
            bare.append(_seconds(lambda: _process(BARE, "", env)))
            began, between = time.perf_counter(), _cpu()
            output = _process([str(COMMAND), "hook", event], body, env)
            above.append(time.perf_counter() - began - bare[-1])
            cpu.append(_cpu() - between - (between - before))
            failed += b"systemMessage" in output
        note = f"above the bare import before it; n={rounds}, {failed} without memory"
        report.figure(f"hook {event}, p50", percentile(above, 0.5) * MS, "ms", at_most(P50_MS), note)
        report.figure(f"hook {event}, p95", percentile(above, 0.95) * MS, "ms", at_most(P95_MS), note)
        report.figure(
            f"hook {event}, CPU, p50", percentile(cpu, 0.5) * MS, "ms", None, "likewise above the bare import"
        )
    report.baseline("a process that imports json and http.client, p50", percentile(bare, 0.5) * MS, "ms")


def _calls(report: Report, url: str, token: str, query: dict[str, str], corpus: Corpus, rounds: int) -> None:
    def message(number: int, prompt: str) -> dict[str, Any]:
        params = {"name": "recall", "arguments": {"query": prompt}}
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}

    parts = urlsplit(url)
    service = http.client.HTTPConnection(parts.hostname or "", parts.port)
    headers = {**_HEADERS, "Authorization": f"Bearer {token}"}
    named = ["--agent", query["agent_id"], "--crew", query["crew_id"], "--workspace", query["workspace_id"]]
    command = [str(COMMAND), "mcp", "--url", url, "--token", token, *named]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as proxy:
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        lines, answers = proxy.stdin, proxy.stdout

        def directly(sent: bytes) -> bytes:
            service.request("POST", f"/mcp?{urlencode(query)}", sent, headers)
            return service.getresponse().read()

        def through(sent: bytes) -> bytes:
            lines.write(sent + b"\n")
            lines.flush()
            return answers.readline()

        times: dict[Callable[[bytes], bytes], list[float]] = {directly: [], through: []}
        for number, prompt in enumerate(corpus.queries(rounds + 10, seed=2)):
            for ask in (directly, through) if number % 2 else (through, directly):
                sent = json.dumps(message(number, prompt)).encode()
                began = time.perf_counter()
                answer = json.loads(ask(sent))
                took = time.perf_counter() - began
                assert not answer["result"].get("isError"), answer
                if number >= 10:
                    times[ask].append(took)
        lines.close()
    report.baseline("call of recall to the service, p50", percentile(times[directly], 0.5) * MS, "ms", f"n={rounds}")
    added = median(times[through]) - median(times[directly])
    report.figure("mcp adds to a call", added * MS, "ms", at_most(ADDED_MS), f"difference of the medians; n={rounds}")


def _measure(report: Report, folder: Path, corpus: Corpus, last_seq: int, rounds: int) -> None:
    with Stack(folder / "data") as stack:
        ready = stack.up()
        wait_folded(stack, last_seq)
        query = {"agent_id": "agent-00", "crew_id": "crew-0", "workspace_id": corpus.workspace(0)}
        token = (folder / "data" / "admin.token").read_text().strip()
        env = {**os.environ, "CREW_JOURNAL_URL": ready.http, "CREW_JOURNAL_TOKEN": token}
        env |= {"CREW_JOURNAL_AGENT": "agent-00", "CREW_JOURNAL_CREW": "crew-0"}
        env |= {"CREW_JOURNAL_WORKSPACE": query["workspace_id"], "XDG_STATE_HOME": str(folder / "state")}
        _calls(report, ready.http, token, query, corpus, rounds * 4)
        _hooks(report, folder, corpus, env, rounds)


async def run(quick: bool, folder: Path) -> Report:
    """Measure."""
    entries, rounds = (10_000, 10) if quick else (100_000, 100)
    report = Report("hook", quick, {"entries": entries, "rounds": rounds})
    corpus = Corpus(entries)
    filled = await prepare(folder / "data", corpus, 0)
    await asyncio.to_thread(_measure, report, folder, corpus, filled.last_seq, rounds)
    return report
