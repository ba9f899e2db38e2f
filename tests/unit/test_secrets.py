"""The scrubber finds credentials by the formats of their issuers, and nothing else."""

from __future__ import annotations

import time

import pytest

from crew_journal.schemas.rules.secrets import redacted, secrets_in
from crew_journal.services.access.owner_token import mint_token

SECRETS = {
    "aws_access_key": "AKIA" + "ABCDEFGHIJKLMNOP",
    "github_token": "ghp" + "_" + "a1" * 18,
    "gitlab_token": "glpat" + "-" + "a1" * 10,
    "slack_token": "xoxb" + "-1234567890-abcdef",
    "anthropic_key": "sk-ant" + "-api03-" + "a1" * 20,
    "openai_key": "sk-proj" + "-" + "a1" * 20,
    "stripe_key": "sk_live" + "_" + "a1" * 12,
    "google_key": "AIza" + "a1" * 17 + "b",
    "npm_token": "npm" + "_" + "a1" * 18,
    "crew_journal_token": mint_token(),
    "json_web_token": "eyJ" + "hbGciOiJI" + "x" * 5 + ".eyJ" + "zdWIiOiIx" * 2 + "." + "a1" * 15,
    "password_in_url": "postgres://app:" + "hunter2" + "@db.internal/app",
    "private_key": "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIE\n-----END RSA " + "PRIVATE KEY-----",
}


@pytest.mark.parametrize("kind", SECRETS)
def test_each_kind_is_found_and_redacted(kind: str) -> None:
    text = f"- use {SECRETS[kind]} for the build"
    assert secrets_in(text) == (kind,)
    assert redacted(text) == f"- use [REDACTED: {kind}] for the build"


@pytest.mark.parametrize(
    "text",
    [
        "the key is in the vault under aws/prod",
        "export TOKEN=$GITHUB_TOKEN, see https://example.com:8080/a@b",
        "postgres://app:${DB_PASSWORD}@db/app and redis://user:<password>@host",
        "commit 5f1d7a84db00d2fce00b31a7fc73224f, id j_01a20412990c7229bef14fc41011aa0f",
        "the task-force sk-1 and AKIA are words",
    ],
)
def test_what_only_speaks_of_secrets_is_left_alone(text: str) -> None:
    assert secrets_in(text) == ()
    assert redacted(text) == text


@pytest.mark.parametrize("piece", ["a://", "https://u:", "-----BEGIN PRIVATE KEY-----", "eyJ", "xoxb-", "a.eyJ"])
def test_a_hostile_text_takes_no_longer_than_its_length_explains(piece: str) -> None:
    def seconds(chars: int) -> float:
        started = time.process_time()
        secrets_in((piece * chars)[:chars])
        return time.process_time() - started

    assert seconds(200_000) < 40 * max(seconds(20_000), 0.002)
