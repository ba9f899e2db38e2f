"""The address of the service and the token: from arguments, the environment, or the data directory of an ``up``.

Invariant: nothing is read at import; unless given explicitly, a token is used only with a URL from the same source, so
that it is not sent to a different service. A data directory that was not named is used only if a person trusts it
(``project``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ...schemas.core.errors import InvalidQuery, NotAllowed, NotAuthenticated, NotFound

if TYPE_CHECKING:
    from ..data_dir import Running

URL_VARIABLE: Final = "CREW_JOURNAL_URL"
TOKEN_VARIABLE: Final = "CREW_JOURNAL_TOKEN"
DATA_DIR_VARIABLE: Final = "CREW_JOURNAL_DATA_DIR"
DEFAULT_DATA_DIR: Final = ".crew-journal"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """A service and a token.

    Attributes:
        url: URL without a slash at the end.
        token: The bearer token.
    """

    url: str
    token: str = field(repr=False)

    @property
    def is_loopback(self) -> bool:
        """Whether the service is on this machine; then the environment's proxies are ignored."""
        return urlsplit(self.url).hostname in _LOOPBACK

    def arguments(self) -> dict[str, Any]:
        """The arguments for httpx's blocking or asynchronous client.

        Raises:
            NotAuthenticated: If the token cannot be sent.
        """
        if not self.token.isascii():
            raise NotAuthenticated(
                "the token has characters that tokens do not have", hint="copy it as `token create` printed it"
            )
        headers = {"Authorization": f"Bearer {self.token}"}
        return {"base_url": self.url, "headers": headers, "trust_env": not self.is_loopback}


def find(url: str | None, token: str | None, data_dir: str | os.PathLike[str] | None) -> ServiceAddress:
    """Determine the service and the token.

    Raises:
        NotFound: If no URL is given and no service uses the data directory.
        NotAllowed: If the data directory was found in this folder and is not trusted.
        NotAuthenticated: If there is no token.
        InvalidQuery: If the URL is not valid.
    """
    named = url or (os.environ.get(URL_VARIABLE) if data_dir is None else None)
    token = token or os.environ.get(TOKEN_VARIABLE)
    if named is None:
        from ..data_dir import read_owner_token  # imported late, because a named service needs no data directory

        folder = data_dir_of(data_dir or os.environ.get(DATA_DIR_VARIABLE))
        named = _address_of(folder)
        token = token or read_owner_token(folder)
    if not token:
        raise NotAuthenticated("there is no token", hint=f"give one, or set {TOKEN_VARIABLE}")
    parts = urlsplit(named)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidQuery("not a valid URL", hint="write it like http://127.0.0.1:9119", field="url")
    return ServiceAddress(named.rstrip("/"), token)


def data_dir_of(named: str | os.PathLike[str] | None) -> Path:
    """The named data directory, else the data directory in the current folder if it is trusted.

    Raises:
        NotAllowed: If it was found in the current folder and is not trusted.
    """
    if named is not None and os.fspath(named):
        return Path(named)
    from .project import check_journal

    folder = Path(DEFAULT_DATA_DIR)
    check_journal(folder)
    return folder


def running(folder: Path) -> Running | None:
    """The content of a data directory's ``runtime.json`` if a process owns the directory; the service may not answer.

    Raises:
        NotAllowed: If a person trusted the directory, but the file was not written by the service with the directory's
            owner token.
    """
    from ..data_dir import read_owner_token, read_running
    from .project import is_noted

    known = read_running(folder)
    if known is not None and is_noted(folder) and not known.is_sealed_by(read_owner_token(folder)):
        raise NotAllowed(
            f"the address in {folder.absolute() / 'runtime.json'} was not written by the service of this journal",
            hint="stop `crew-journal up` and start it again",
        )
    return known


def _address_of(folder: Path) -> str:
    known = running(folder)
    if known is not None:
        return known.http
    raise NotFound(
        f"no service runs on the data directory {folder.absolute()}",
        hint=f"start `crew-journal up`, or set {DATA_DIR_VARIABLE}, or {URL_VARIABLE} and {TOKEN_VARIABLE}",
    )
