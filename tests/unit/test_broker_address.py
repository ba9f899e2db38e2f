"""The URL of a broker: what it names is taken apart, and nothing secret in it is ever quoted."""

from __future__ import annotations

import pytest
from click import BadParameter
from pydantic import ValidationError

from crew_journal.schemas.core.broker_address import BrokerAddress, broker_address
from crew_journal.schemas.settings import Settings
from crew_journal.services.cli.options import settings_from

SECRET = "hunter2pw"


@pytest.mark.parametrize(
    ("written", "url", "user", "password"),
    [
        ("nats://127.0.0.1:14304", "nats://127.0.0.1:14304", None, None),
        ("broker.example:4333", "nats://broker.example:4333", None, None),
        ("broker.example", "nats://broker.example:4222", None, None),
        ("TLS://broker.example/", "tls://broker.example:4222", None, None),
        ("nats://[::1]:4333", "nats://[::1]:4333", None, None),
        ("nats://cj:hunter2pw@h:1", "nats://h:1", "cj", SECRET),
        ("cj:hunter2pw@h", "nats://h:4222", "cj", SECRET),
        ("nats://cj:s3cr%3Aet%2F%40%25@h:1", "nats://h:1", "cj", "s3cr:et/@%"),
        ("nats://cj:at@sign@h:1", "nats://h:1", "cj", "at@sign"),
        ("nats://a%20token@h:1", "nats://h:1", "a token", None),
    ],
)
def test_a_url_is_taken_apart(written: str, url: str, user: str | None, password: str | None) -> None:
    address = broker_address(written)
    assert (address.url, address.user, address.password) == (url, user, password)
    settings = Settings(nats=written)
    assert (settings.nats, settings.nats_user, settings.nats_password) == (url, user, password)
    if password is not None:
        assert password not in repr(address)
        assert password not in repr(settings)


@pytest.mark.parametrize(
    "written",
    [
        "http://cj:hunter2pw@h:1",
        "ws://cj:hunter2pw@h:1",
        "nats://",
        "nats://:1",
        "nats://cj:hunter2pw@",
        "nats://cj:hunter2pw@h:hunter2pw",
        "nats://cj:hunter2pw/more@h:1",
        "nats://cj:12/hunter2pw@h:1",
        "nats://cj:12#hunter2pw@h:1",
        "nats://:hunter2pw@h:1",
        "nats://cj:hunter2pw@h:99999",
        "hunter2pw@x://h",
    ],
)
def test_what_is_no_address_is_refused_by_its_option_and_not_quoted(written: str) -> None:
    with pytest.raises(BadParameter) as refused:
        settings_from(nats=written)
    assert refused.value.param_hint == "--nats"
    assert SECRET not in refused.value.message
    with pytest.raises(ValidationError) as raw:
        Settings(nats=written)
    assert SECRET not in str(raw.value)


@pytest.mark.parametrize("empty", ["", None])
def test_an_empty_setting_counts_as_unset(monkeypatch: pytest.MonkeyPatch, empty: str | None) -> None:
    for name in ("NATS", "NATS_USER", "NATS_PASSWORD"):
        monkeypatch.setenv(f"CREW_JOURNAL_{name}", "")
    settings = Settings() if empty is None else Settings(nats=empty)
    assert (settings.nats, settings.nats_user, settings.nats_password) == (None, None, None)


def test_the_environment_may_hold_the_url_or_user_and_password_but_not_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREW_JOURNAL_NATS", f"nats://cj:{SECRET}@h:1")
    assert Settings().nats_password == SECRET
    monkeypatch.setenv("CREW_JOURNAL_NATS_USER", "other")
    with pytest.raises(BadParameter, match="give the user once") as refused:
        settings_from()
    assert SECRET not in refused.value.message
    monkeypatch.setenv("CREW_JOURNAL_NATS", "nats://h:1")
    assert (Settings().nats, Settings().nats_user) == ("nats://h:1", "other")


def test_servers_of_a_cluster_are_separated_by_commas_and_share_a_user() -> None:
    found = broker_address("nats://ada:pw@a, b:4333,tls://c")
    assert found == BrokerAddress("nats://a:4222,nats://b:4333,tls://c:4222", "ada", "pw")


def test_servers_of_a_cluster_with_different_users_are_refused() -> None:
    with pytest.raises(ValueError, match="different users"):
        broker_address("nats://ada:pw@a,nats://eve:pw@b")
