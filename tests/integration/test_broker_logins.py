"""A broker of one's own with TLS and client certificates, or with credentials files: a node works on it."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nkeys
import pytest
from support.nats import nats_binary
from support.running import running_node

from crew_journal.schemas.core.errors import BrokerUnavailable
from crew_journal.services.client import AsyncCrewJournal
from crew_journal.services.journal.broker.broker import free_port

DEADLINE_S = 20.0


@asynccontextmanager
async def server(folder: Path, config: str) -> AsyncIterator[int]:
    """A nats-server with JetStream and this configuration; yields its port."""
    port, file = free_port(), folder / "server.conf"
    file.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder / "js"}" }}\n{config}\n')
    process = subprocess.Popen(  # noqa: ASYNC220  # it returns at once
        [nats_binary().path, "-c", file, "-l", folder / "log"], stdout=subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            while "Server is ready" not in ((folder / "log").read_text() if (folder / "log").exists() else ""):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        yield port
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def certificates(folder: Path) -> None:
    """An authority of our own (``ca.pem``), and certificates of a server and of a client that it signed."""
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout")
    openssl(folder, *new, "ca.key", "-x509", "-subj", "/CN=authority", "-out", "ca.pem", "-days", "2")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl(folder, *new, f"{name}.key", "-subj", f"/CN={name}", "-out", f"{name}.csr")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.pem", "-extfile", "names")
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-days", "2")


async def stores_an_entry(folder: Path, **settings: Any) -> None:
    """Appends through one connection, folds through another."""
    async with (
        running_node(folder / "data", **settings) as node,
        AsyncCrewJournal(node.http_url, token=node.owner_token) as journal,
    ):
        stored = await journal.append({"entry_type": "note", "summary": "the winch is green"})
        assert (await journal.get(stored.id, min_seq=stored.seq)).summary == "the winch is green"


async def test_a_node_works_over_tls_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    certificates(tmp_path)
    paths = {name: tmp_path / name for name in ("ca.pem", "client.pem", "client.key")}
    config = f"""tls {{ cert_file: "{tmp_path}/server.pem", key_file: "{tmp_path}/server.key",
        ca_file: "{tmp_path}/ca.pem", verify: true }}
        authorization {{ user: ada, password: secret }}"""
    known = {"nats_ca": paths["ca.pem"], "nats_cert": paths["client.pem"], "nats_key": paths["client.key"]}
    async with server(tmp_path, config) as port:
        login = {"nats": f"tls://127.0.0.1:{port}", "nats_user": "ada", "nats_password": "secret"}
        await stores_an_entry(tmp_path, **login, **known)
        with pytest.raises(BrokerUnavailable, match="certificate"):
            await stores_an_entry(tmp_path / "stranger", **login)


def pair(prefix: int) -> nkeys.KeyPair:
    """A new pair of keys."""
    return nkeys.from_seed(nkeys.encode_seed(nkeys.nacl.utils.random(32), prefix))  # type: ignore[attr-defined]


def token(issuer: nkeys.KeyPair, subject: str, kind: str, claims: Mapping[str, Any]) -> str:
    """A JWT of NATS, signed by its issuer."""

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")

    body = {
        "jti": "x",
        "iat": 1_700_000_000,
        "iss": issuer.public_key.decode(),
        "sub": subject,
        "name": kind,
        "nats": {**claims, "type": kind, "version": 2},
    }
    signed = ".".join(part(json.dumps(value).encode()) for value in ({"typ": "JWT", "alg": "ed25519-nkey"}, body))
    return f"{signed}.{part(issuer.sign(signed.encode()))}"


async def test_a_node_logs_in_with_a_credentials_file(tmp_path: Path) -> None:
    operator, account, system, user = (
        pair(prefix)
        for prefix in (
            nkeys.PREFIX_BYTE_OPERATOR,
            nkeys.PREFIX_BYTE_ACCOUNT,
            nkeys.PREFIX_BYTE_ACCOUNT,
            nkeys.PREFIX_BYTE_USER,
        )
    )
    plain = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1) | {"wildcards": True}
    stored = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    names = [one.public_key.decode() for one in (account, system)]
    tokens = [
        token(operator, name, "account", {"limits": limits})
        for name, limits in zip(names, (plain | stored, plain), strict=True)
    ]
    own = token(operator, operator.public_key.decode(), "operator", {"system_account": names[1]})
    config = f"""operator: {own}
        resolver: MEMORY
        system_account: {names[1]}
        resolver_preload: {{ {names[0]}: {tokens[0]}, {names[1]}: {tokens[1]} }}"""
    limits = {"subs": -1, "data": -1, "payload": -1}
    bearer = token(account, user.public_key.decode(), "user", limits)
    creds = tmp_path / "node.creds"
    creds.write_text(
        f"-----BEGIN NATS USER JWT-----\n{bearer}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    async with server(tmp_path, config) as port:
        await stores_an_entry(tmp_path, nats=f"nats://127.0.0.1:{port}", nats_creds=creds)
        with pytest.raises(BrokerUnavailable, match=r"(?i)authorization"):
            await stores_an_entry(tmp_path / "stranger", nats=f"nats://127.0.0.1:{port}")
