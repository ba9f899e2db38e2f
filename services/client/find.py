"""The address of the service and the token: from arguments, the environment, or the data directory of an ``up``.

Invariant: nothing is read at import; a token is never taken from a place that the URL did not come from, unless it was
given, so it is not sent to another service.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from ...schemas.errors import InvalidQuery, NotAuthenticated, NotFound

URL_VARIABLE: Final = "CREW_JOURNAL_URL"
TOKEN_VARIABLE: Final = "CREW_JOURNAL_TOKEN"
DATA_DIR_VARIABLE: Final = "CREW_JOURNAL_DATA_DIR"
DEFAULT_DATA_DIR: Final = ".crew-journal"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Address:
    """A service and a token.

    Attributes:
        url: Without a slash at the end.
        token: The bearer token.
    """

    url: str
    token: str = field(repr=False)

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine; proxies of the environment are then left out."""
        return urlsplit(self.url).hostname in _LOOPBACK

    def arguments(self) -> dict[str, Any]:
        """What a client of httpx is made with, of either flavour.

        Raises:
            NotAuthenticated: If the token cannot be sent.
        """
        if not self.token.isascii():
            raise NotAuthenticated(
                "the token has characters that tokens do not have", hint="copy it as `token create` printed it"
            )
        headers = {"Authorization": f"Bearer {self.token}"}
        return {"base_url": self.url, "headers": headers, "trust_env": not self.is_loopback}


def find(url: str | None, token: str | None, data_dir: str | os.PathLike[str] | None) -> Address:
    """The service that is meant.

    Raises:
        NotFound: If no URL is given and no service runs on the data directory.
        NotAuthenticated: If there is no token for it.
        InvalidQuery: If the URL is not valid.
    """
    named = url or (os.environ.get(URL_VARIABLE) if data_dir is None else None)
    token = token or os.environ.get(TOKEN_VARIABLE)
    if named is None:
        folder = Path(data_dir or os.environ.get(DATA_DIR_VARIABLE) or DEFAULT_DATA_DIR)
        named = _running(folder)
        token = token or _owner_token(folder)
    if not token:
        raise NotAuthenticated("there is no token", hint=f"give one, or set {TOKEN_VARIABLE}")
    parts = urlsplit(named)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidQuery("not a valid URL", hint="write it like http://127.0.0.1:9119", field="url")
    return Address(named.rstrip("/"), token)


def _running(folder: Path) -> str:
    from ..data_dir import is_owned  # here: a service on another machine is asked from any system

    try:
        http = str(json.loads((folder / "runtime.json").read_bytes())["http"])
        if is_owned(folder):  # else it was killed, and its port may be another service's by now
            return http
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise NotFound(
        f"no service runs on the data directory {folder.absolute()}",
        hint=f"start `crew-journal up`, or set {DATA_DIR_VARIABLE}, or {URL_VARIABLE} and {TOKEN_VARIABLE}",
    )


def _owner_token(folder: Path) -> str | None:
    try:
        return (folder / "admin.token").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
