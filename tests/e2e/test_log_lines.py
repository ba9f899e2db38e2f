"""The log of a service, as a supervisor reads it: every line is JSON, whatever happens."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import httpx
from support.processes import Stack, wait_for


def test_every_line_of_stderr_is_json_while_the_broker_dies_and_clients_misbehave(tmp_path: Path) -> None:
    with Stack(tmp_path / "data") as stack:
        host, _, port = stack.up().http.removeprefix("http://").partition(":")
        address, token = (host, int(port)), stack.token
        head = f"POST /v1/journal HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n".encode()
        for sent in (
            b"\x16\x03 no HTTP\r\n\r\n",
            b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000,
            b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
            head + b"Content-Length: 1000\r\n\r\n[1, 2",
            head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            head.replace(b"POST /v1/journal", b"GET /v1/journal/stream?workspace_id=w") + b"\r\n",
        ):
            with socket.create_connection(address) as client:
                client.sendall(sent)
                if b"Content-Length" not in sent:
                    client.recv(1)
        with httpx.Client(base_url=stack.url, headers={"Authorization": f"Bearer {token}"}, timeout=120) as http:
            killed = stack.signal_nats(signal.SIGKILL)
            wait_for(lambda: stack.nats_pid() not in (None, killed), "a new broker")
            wait_for(lambda: http.get("/readyz").status_code == 200, "a ready service")
            entry = {"entry_type": "run.completed", "summary": "it ran", "workspace_id": "w"}
            assert http.post("/v1/journal", json=entry).status_code == 201
        second = stack.run("up", "--http", "127.0.0.1:0", "--embedder", "none")
        assert stack.terminate() == 0
        lines = stack.log_path.read_text("utf-8").splitlines() + second.err.splitlines()
    events = [json.loads(line) for line in lines]
    assert all({"event", "level", "timestamp"} <= event.keys() for event in events)
    said = [event["message"] for event in events if event["event"] == "said"]
    assert any(line.startswith("HTTP ") for line in said)
    assert any(line.startswith("error: ") for line in said)
    assert "stopped" in said
    assert [event for event in events if event["event"] == "http.unexpected"] == []
    assert [event for event in events if event.get("logger") == "uvicorn.error"] == []
    assert any(event["event"].startswith("nats") or event.get("logger", "").startswith("nats") for event in events)
