"""The URL by which somebody names a broker of his own, taken apart.

Why: a URL may hold a password, and is shown wherever an address is: on the screen, in ``runtime.json``, in ``status``, in
errors. Invariant: ``BrokerAddress.url`` holds neither user nor password, and no error quotes the URL.
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
    """Where a broker is, and who asks.

    Attributes:
        url: ``nats://HOST:PORT`` or ``tls://HOST:PORT``.
        user: User that the URL named, percent-decoded; a token if there is no password. None if it named none.
        password: Its password, percent-decoded.
    """

    url: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


def broker_address(text: str) -> BrokerAddress:
    """Take a URL apart; one without a scheme is ``nats://``, one without a port means 4222.

    Raises:
        ValueError: If it is no such URL; says what is wrong, and nothing of what was in it but its scheme.
    """
    written = text.strip()
    named, separator, _ = written.partition("://")
    scheme = named.lower() if separator else SCHEMES[0]
    if scheme not in SCHEMES:
        raise ValueError(f"is of the scheme {scheme}, not {_FORM}" if scheme.isalnum() else _malformed())
    try:
        parts = urlsplit(written if separator else f"{scheme}://{written}")
        port = parts.port or DEFAULT_PORT
    except ValueError:  # its text quotes what it could not read, which may be of a password
        raise ValueError(_malformed()) from None
    if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(_malformed())
    if parts.username == "" or (parts.password is not None and not parts.username):
        raise ValueError("names a password without a user")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return BrokerAddress(f"{scheme}://{host}:{port}", _decoded(parts.username), _decoded(parts.password))


def _malformed() -> str:
    return f"is not {_FORM}; in a user or password write / ? # @ : % as %2F %3F %23 %40 %3A %25"


def _decoded(text: str | None) -> str | None:
    return None if text is None else unquote(text)
