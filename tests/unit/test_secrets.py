"""Credentials are found by the formats of their issuers, and texts that only speak of them are left alone."""

from __future__ import annotations

import json
import time

import pytest

from crew_journal.schemas.text.secrets import find_secrets, formats, kinds_of, may_hold_secrets, without
from crew_journal.services.access.tokens import mint_token

MIXED = "a1B2" * 20
PEM_BODY = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 2] * 4)
SECRETS = {
    "aws key": "AKIA" + "ABCDEFGHIJKLMNOP",
    "github token": "ghp" + "_" + "a1" * 18,
    "gitlab token": "glpat" + "-" + "a1" * 10,
    "slack token": "xoxb" + "-1234567890-abcdef",
    "anthropic key": "sk-ant" + "-api03-" + "a1" * 20,
    "openai key": "sk-proj" + "-" + "a1" * 20,
    "stripe key": "sk_live" + "_" + "a1" * 12,
    "google key": "AIza" + "a1" * 17 + "b",
    "npm token": "npm" + "_" + "a1" * 18,
    "pypi token": "pypi-" + "AgEIcHlwaS5vcmc" + "a1" * 30,
    "hugging face token": "hf" + "_" + "a1" * 17,
    "sendgrid key": "SG" + "." + "a1" * 11 + "." + "a1" * 21 + "b",
    "crew journal token": mint_token(),
    "json web token": "eyJ" + "hbGciOiJI" + "x" * 5 + ".eyJ" + "zdWIiOiIx" * 2 + "." + "a1" * 15,
    "password in a url": "postgres://app:" + "hunter2" + "@db.internal/app",
    "private key": "-----BEGIN " + "RSA PRIVATE KEY-----\n" + PEM_BODY + "\n-----END RSA " + "PRIVATE KEY-----",
    "age key": "AGE-SECRET-KEY-" + "1" + "QZ8" * 19,
}
ASSIGNED = {
    "password": ["password=" + "Tr0ub4dor&3", "DB_PASSWORD: " + "hunter22", '"passwd": "' + "pa55word!" + '"'],
    "key": [
        "aws_secret_access_key = " + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "api_key: '" + MIXED[:32] + "'",
        "CLIENT_SECRET=" + MIXED[:24],
    ],
    "bearer token": ["Authorization: Bearer " + MIXED[:40]],
    "azure key": ["AccountName=a;AccountKey=" + MIXED + "abcdef==;EndpointSuffix=x"],
}


def redact(text: str) -> str:
    return without(text, find_secrets(text))


@pytest.mark.parametrize("kind", SECRETS)
def test_each_kind_is_found_and_redacted(kind: str) -> None:
    text = f"- use {SECRETS[kind]} for the build"
    assert kinds_of(find_secrets(text)) == (kind,)
    assert redact(text) == f"- use [redacted: {kind}] for the build"
    assert may_hold_secrets(text.encode())
    assert may_hold_secrets(json.dumps({"summary": text}).encode())


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in ASSIGNED.items() for text in texts])
def test_what_is_assigned_to_the_name_of_a_key_is_redacted_and_the_name_stays(kind: str, text: str) -> None:
    [secret] = find_secrets(text)
    assert secret.kind == kind
    assert redact(text) == text.replace(text[secret.start : secret.end], f"[redacted: {kind}]")
    assert may_hold_secrets(json.dumps({"summary": text}).encode())
    assert text[: secret.start].rstrip("\"' ").endswith(("=", ":", "Bearer"))


@pytest.mark.parametrize("name", ["api_key", "CLIENT_SECRET", "auth_token"])
def test_a_value_of_short_parts_between_colons_is_searched_and_redacted(name: str) -> None:
    value = "a1b2c3d4" + ":e5f6g7h8"
    for text in (f"{name}: {value}", f"{name} = '{value}'", f'{{"{name}": "{value}"}}'):
        assert kinds_of(find_secrets(text)) == ("key",)
        assert value not in redact(text)
        assert may_hold_secrets(text.encode())
        assert may_hold_secrets(json.dumps({"summary": text}).encode())
    assert may_hold_secrets(json.dumps({"payload": {name: value}}).encode())


def test_every_kind_has_an_example() -> None:
    assert {format_.kind for format_ in formats()} == SECRETS.keys() | ASSIGNED.keys()


@pytest.mark.parametrize("kind", SECRETS)
def test_a_redacted_text_has_no_credential(kind: str) -> None:
    text = redact(f"{SECRETS[kind]}\npassword={SECRETS[kind]}")
    assert find_secrets(text) == []
    assert redact(text) == text


def test_a_private_key_whose_end_is_missing_is_redacted_and_the_text_after_it_stays() -> None:
    cut = "-----BEGIN " + "OPENSSH PRIVATE KEY-----\n" + PEM_BODY
    assert redact(f"{cut}\nand then we rotated it.") == "[redacted: private key]\nand then we rotated it."
    assert redact(f"{cut} and then".replace("\n", " ")) == "[redacted: private key] and then"


@pytest.mark.parametrize(
    "text",
    [
        "the key is in the vault under aws/prod",
        "export TOKEN=$GITHUB_TOKEN, see https://example.com:8080/a@b",
        "postgres://app:${DB_PASSWORD}@db/app and redis://user:<password>@host",
        "commit 5f1d7a84db00d2fce00b31a7fc73224f, id j_01a20412990c7229bef14fc41011aa0f",
        "the task-force sk-1 and AKIA are words",
        "sk-estimators_with_fitted_attributes need no fit",
        "password: required, at least 12 characters; token: a piece of a word",
        "api_key = settings.providers.openai_key2 and secret: vault:kv/app1/password",
        "password=changeme123 in the example, api_key=os.environ['API_KEY_2']",
        "secret=arn:aws:secretsmanager:eu-west-1:123456789012:secret:db",
        "the bearer of this letter; bearer authentication-is-required-everywhere",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "the foreign key: orders.customer_id references customers.id",
        "primary_key=customer_number_2026, cache key: user-profile-000123456789",
    ],
)
def test_what_only_speaks_of_secrets_is_left_alone(text: str) -> None:
    assert find_secrets(text) == []
    assert redact(text) == text


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "a://",
            "https://u:",
            "-----BEGIN PRIVATE KEY-----",
            "eyJ",
            "xoxb-",
            "a.eyJ",
            "password=",
            "secret:'a1",
            "bearer ",
        ),
        *("-----BEGIN PRIVATE KEY----- a1b2c3d4e5f6a7b8", "key=a.b", "sk-", "password=a."),
    ],
)
def test_a_hostile_text_takes_no_longer_than_its_length_explains(piece: str) -> None:
    def seconds(chars: int) -> float:
        started = time.process_time()
        find_secrets((piece * chars)[:chars])
        return time.process_time() - started

    assert seconds(200_000) < 40 * max(seconds(20_000), 0.002)
