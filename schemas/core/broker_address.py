"""Splits the URL of an external broker, or the URLs of the servers of a cluster, into address, user and password.

Addresses are printed and logged. Invariant: ``BrokerAddress.url`` holds neither user nor password, and no error quotes
the submitted URL.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

SCHEMES: Final = ("nats", "tls")
DEFAULT_PORT: Final = 4222
_FORM: Final = "nats://HOST:PORT or tls://HOST:PORT, with commas between the servers of a cluster"


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Address of a broker and the credentials to connect with.

    Attributes:
        url: ``nats://HOST:PORT`` or ``tls://HOST:PORT``; the servers of a cluster are separated by commas.
        user: User from the URL, percent-decoded; sent as a token if there is no password. None if absent.
        password: Password from the URL, percent-decoded.
    """

    url: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


class LoginFiles(NamedTuple):
    """Paths of files for a login at a broker of one's own; None if absent.

    Attributes:
        creds: Credentials (JWT and seed) of a user, as `nsc` writes them.
        ca: Certificates (PEM) of the authority that signed those of the servers; those of the system if absent.
        cert: Certificate (PEM) of this client, for servers that verify clients.
        key: Its private key (PEM).
    """

    creds: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def options(self, url: str) -> dict[str, Any]:
        """The arguments of nats-py for these files.

        Raises:
            OSError: If a file of certificates cannot be read (``ssl.SSLError`` if it is not one).
        """
        found: dict[str, Any] = {} if self.creds is None else {"user_credentials": self.creds}
        if self.ca or self.cert or url.startswith("tls://"):
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
            found["tls"] = context
        return found


NO_FILES: Final = LoginFiles()


class BrokerLogin(NamedTuple):
    """Where a broker is and how to log in.

    Attributes:
        url: As in ``BrokerAddress``.
        user: User, None if the broker requires none.
        password: Password; without one the user is a token.
        files: Files for the login.
    """

    url: str
    user: str | None
    password: str | None
    files: LoginFiles = NO_FILES

    def __repr__(self) -> str:
        return f"BrokerLogin({self.url!r})"


def broker_address(text: str) -> BrokerAddress:
    """Parse URLs separated by commas; the default scheme is ``nats://``, the default port 4222.

    User and password may be given once or with each server.

    Raises:
        ValueError: If a URL is not valid, or the servers have different credentials. The message quotes only the scheme.
    """
    servers = [_server(part) for part in text.split(",")]
    named = {(server.user, server.password) for server in servers if server.user is not None}
    if len(named) > 1:
        raise ValueError("names different users for the servers of one cluster: give the same user, or give it once")
    user, password = next(iter(named), (None, None))
    return BrokerAddress(",".join(server.url for server in servers), user, password)


def _server(text: str) -> BrokerAddress:
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
    return f"is not {_FORM}; in user and password write / ? # @ : % , as %2F %3F %23 %40 %3A %25 %2C"


def _decoded(text: str | None) -> str | None:
    return None if text is None else unquote(text)
