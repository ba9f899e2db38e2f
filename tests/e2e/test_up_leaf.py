"""`up --leaf`: a laptop's node beside a hub, which goes away and comes back at the same address."""

import time
from pathlib import Path

from support.cli import Cli

from crew_journal.services.journal.broker.broker import free_port

DEADLINE_S = 60.0


def shows(cli: Cli, text: str) -> bool:
    return any(text in str(line["summary"]) for line in cli("list", "--all", "--json").lines)


def wait_until(cli: Cli, text: str) -> None:
    until = time.monotonic() + DEADLINE_S
    while not shows(cli, text):
        assert time.monotonic() < until, f"{text!r} does not come"
        time.sleep(0.1)


def test_a_laptop_goes_on_without_its_hub_and_exchanges_with_it_when_it_is_back(
    tmp_path: Path,
) -> None:
    hub, laptop, address = Cli(tmp_path / "hub"), Cli(tmp_path / "laptop"), f"127.0.0.1:{free_port()}"
    refused = laptop("up", "--leaf", f"http://{address}", code=2)
    assert "CREW_JOURNAL_LEAF_TOKEN" in refused.err
    with hub.up(http=address):
        hub("remember", "the hub knows the harbour", "--agent", "bob")
        token = hub("token", "create", "--role", "ADMIN", "-w", "default", "--json").json["token"]
    laptop = Cli(tmp_path / "laptop", {"CREW_JOURNAL_LEAF_TOKEN": token})
    with laptop.up("--leaf", f"http://{address}") as up:
        laptop("remember", "the laptop knows the ferry", "--agent", "ada")
        until = time.monotonic() + DEADLINE_S
        while "is away" not in up.log.read_text():
            assert time.monotonic() < until, "it does not say that the hub is away"
            time.sleep(0.1)
        assert shows(laptop, "ferry")
        with hub.up(http=address):
            wait_until(hub, "ferry")
            wait_until(laptop, "harbour")
