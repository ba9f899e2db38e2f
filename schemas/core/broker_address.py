"""Splits the URL of an external broker into address, user and password.

Addresses are printed and logged. Invariant: ``BrokerAddress.url`` holds neither user nor password, and no error quotes
the submitted URL.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

SCHEMES: Final = ("nats", "tls")
DEFAULT_PORT: Final = 4222
_FORM: Final = "nats://HOST:PORT or tls://HOST:PORT"


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Address of a broker and the credentials to connect with.

    Attributes:
        url: ``nats://HOST:PORT`` or ``tls://HOST:PORT``.
        user: User from the URL, percent-decoded; sent as a token if there is no password. None if absent.
        password: Password from the URL, percent-decoded.
    """

    url: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


def broker_address(text: str) -> BrokerAddress:
    """Parse a URL; the default scheme is ``nats://``, the default port 4222.

    Raises:
        ValueError: If the URL is not valid. The message quotes only the scheme of the URL.
    """
    written = text.strip()
    prefix, separator, _ = written.partition("://")
    scheme = prefix.lower() if separator else SCHEMES[0]
    if scheme not in SCHEMES:
        raise ValueError(f"has the scheme {scheme}; expected {_FORM}" if scheme.isalnum() else _malformed())
    try:
        parts = urlsplit(written if separator else f"{scheme}://{written}")
        port = parts.port or DEFAULT_PORT
    except ValueError:  # the original message may quote a part of the password
        raise ValueError(_malformed()) from None
    if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(_malformed())
    if parts.username == "" or (parts.password is not None and not parts.username):
        raise ValueError("names a password without a user")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return BrokerAddress(f"{scheme}://{host}:{port}", _decoded(parts.username), _decoded(parts.password))


def _malformed() -> str:
    return f"is not {_FORM}; in user and password write / ? # @ : % as %2F %3F %23 %40 %3A %25"


def _decoded(text: str | None) -> str | None:
    return None if text is None else unquote(text)
