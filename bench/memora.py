"""What a rendered prompt holds of tasks, plans and preferences that change in long chats: ``memora_dev`` on a running node.

    python -m bench.memora URL TOKEN_FILE [--load]

Of every value that must appear, whether one of its turns is in the block; of every one that must not, whether one of its
turns is in it without a mark. Invariant: blocks come from the operation ``render``, as agents get them.
"""

from __future__ import annotations

import argparse
import json
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bench.evidence_data import SHARED
from bench.quality_index import lines_of
from crew_journal.schemas.core.limits import RECALL_K_MAX

MEMORA: Final = SHARED / "memora_dev"
WORKSPACE: Final = "memora-weekly"
CHARS: Final = 8_000
"""2,000 tokens of four characters."""
BATCH: Final = 100
PAUSE_S: Final = 0.5


class Node:
    """A running node.

    Args:
        url: Where it listens.
        token: A token of an OWNER.
    """

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(self, path: str, body: Any = None) -> Any:
        """The answer to a request: POST with a body, else GET."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, self._headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def load(self) -> None:
        """Publish the journal and wait for its vectors."""
        records = lines_of(MEMORA / "journal.jsonl")
        for at in range(0, len(records), BATCH):
            self.ask("/v1/journal", records[at : at + BATCH])
        while self.ask(f"/v1/status?workspace_id={WORKSPACE}")["embeddings"].get("missing"):
            time.sleep(PAUSE_S)


def blocks(node: Node, mode: str, k: int) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Each check, and the block that its question gets."""
    for check in lines_of(MEMORA / "checks.jsonl"):
        yield (
            check,
            node.ask(
                "/v1/recall/render",
                {
                    "workspace_id": WORKSPACE,
                    "agent_id": check["agent_id"],
                    "scope": "own",
                    "query": check["query"],
                    "asked_at": f"{check['date']}T23:59:00Z",
                    "mode": mode,
                    "k": k,
                    "max_chars": CHARS,
                },
            ),
        )


def main() -> None:
    """Print the shares for each mode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("token", type=Path)
    parser.add_argument("--load", action="store_true")
    asked = parser.parse_args()
    node = Node(asked.url, asked.token.read_text().strip())
    if asked.load:
        node.load()
    for mode, k in (("inject", 5), ("inject", RECALL_K_MAX), ("search", 10), ("search", RECALL_K_MAX)):
        must, must_not, lines, chars = [], [], [], []
        for check, block in blocks(node, mode, k):
            rendered = {hit["entry_id"] for hit in block["hits"]}
            unmarked = {hit["entry_id"] for hit in block["hits"] if hit["standing"] is None}
            must += [not rendered.isdisjoint(turns) for turns in check["must"].values()]
            must_not += [not unmarked.isdisjoint(turns) for turns in check["must_not"].values()]
            lines.append(len(rendered))
            chars.append(len(block["text"]))
        print(
            f"{mode} k={k}: must {sum(must) / len(must):.3f} of {len(must)}, must not {sum(must_not) / len(must_not):.3f} "
            f"of {len(must_not)}; {sum(lines) / len(lines):.1f} lines, {sum(chars) / len(chars):.0f} characters"
        )


if __name__ == "__main__":
    main()
