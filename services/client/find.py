"""The address of the service and the token: from arguments, the environment, a context, or the data directory of an ``up``.

Invariant: nothing is read at import; unless given explicitly, a token is used only with a URL from the same source, so
that it is not sent to a different service. A data directory that was not named is used only if a person trusts it
(``project``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ...schemas.core.errors import InvalidQuery, NotAllowed, NotAuthenticated, NotFound
from ...schemas.core.user_folders import own_journal

if TYPE_CHECKING:
    from ..data_dir import Running

URL_VARIABLE: Final = "CREW_JOURNAL_URL"
TOKEN_VARIABLE: Final = "CREW_JOURNAL_TOKEN"
DATA_DIR_VARIABLE: Final = "CREW_JOURNAL_DATA_DIR"
WORKSPACE_VARIABLE: Final = "CREW_JOURNAL_WORKSPACE"
CONFIG_VARIABLE: Final = "CREW_JOURNAL_CONFIG"
CONTEXT_VARIABLE: Final = "CREW_JOURNAL_CONTEXT"
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
        arguments: dict[str, Any] = {"base_url": self.url, "headers": {"Authorization": f"Bearer {self.token}"}}
        if urlsplit(self.url).scheme == "http":  # reading certificates that are not used takes 40 ms
            arguments["verify"] = False
        return arguments | {"trust_env": not self.is_loopback}


# Where a journal is looked for: the one order for `up`, all commands, hooks, `mcp` and the client.


@dataclass(frozen=True, slots=True)
class Place:
    """A place where a journal is looked for: an address, or a data directory.

    Attributes:
        origin: What names the place, for people.
        url: The address of a service; None for a data directory.
        data_dir: The data directory; None for an address, and for a place that is not given.
        absent: Why there is nothing at this place; empty if there is a journal, or one may be made.
        token: The token to send, if the place has one of its own.
        workspace: The workspace to work in, if the place names one.
        is_own: Whether it is the user's own journal.
        found: Whether the data directory was found in a folder, so that it counts only if it is trusted.
    """

    origin: str
    url: str | None = None
    data_dir: Path | None = None
    absent: str = ""
    token: str | None = field(default=None, repr=False)
    workspace: str | None = None
    is_own: bool = False
    found: bool = False

    def check(self) -> None:
        """Refuse a journal that was found in a folder and is not trusted.

        Raises:
            NotAllowed: If it is not trusted.
        """
        if self.found and self.data_dir is not None:
            from .project import check_journal

            check_journal(self.data_dir)


def places(
    url: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Place]:
    """All places in the order in which a journal is looked for; the first that is not absent is used.

    Args:
        url: An address that is given as an argument.
        data_dir: A data directory that is given as an argument.
        folder: The folder of the session; the current one if absent.
        environment: The variables; those of the process if absent.

    Raises:
        InvalidQuery: If the configuration file is not valid.
    """
    variables = os.environ if environment is None else environment
    for origin, kind, value in (
        ("--url", "url", url),
        ("--data-dir", "data_dir", None if data_dir is None else os.fspath(data_dir)),
        (URL_VARIABLE, "url", variables.get(URL_VARIABLE)),
        (DATA_DIR_VARIABLE, "data_dir", variables.get(DATA_DIR_VARIABLE)),
    ):
        if not value:
            yield Place(origin, absent="not given")
        elif kind == "url":
            yield Place(origin, url=value)
        else:
            yield Place(origin, data_dir=Path(value))
    yield _context(variables)
    from .project import JOURNAL_FOLDER, is_there, root_of

    here = Path(folder or ".")
    root = root_of(here)
    beside = [("this folder", here)] + ([("this repository", root)] if root != here.absolute() else [])
    for origin, parent in beside:
        journal = Path(JOURNAL_FOLDER) if folder is None and parent is here else parent / JOURNAL_FOLDER
        yield Place(origin, data_dir=journal, absent=is_there(journal), found=True)
    try:
        yield Place("your own journal", data_dir=own_journal(), is_own=True)
    except RuntimeError:
        yield Place("your own journal", absent="there is no home directory: set HOME")


def located(
    url: str | None = None, data_dir: str | os.PathLike[str] | None = None, folder: Path | None = None
) -> Place:
    """The journal that is used: the first of :func:`places` that is not absent.

    Raises:
        NotFound: If there is no home directory and no journal is named.
        NotAllowed: If the journal was found in a folder and is not trusted.
    """
    return _first(place for place in places(url, data_dir, folder))


def located_context(name: str) -> Place:
    """The journal that a context names, whatever else is set.

    Raises:
        NotFound: If there is no such context, or it names no journal.
    """
    return _first([_context({CONTEXT_VARIABLE: name})])


def data_dir_of(named: str | os.PathLike[str] | None) -> Path:
    """The data directory that is used if no address is considered, as for ``up``.

    Raises:
        NotFound: If there is no home directory and no data directory is named.
        NotAllowed: If it was found in a folder and is not trusted.
    """
    chosen = _first(place for place in places(None, named) if place.url is None).data_dir
    assert chosen is not None, "a place without an address has a data directory"
    return chosen


def _first(candidates: Iterable[Place]) -> Place:
    for place in candidates:
        if not place.absent:
            place.check()
            return place
    raise NotFound(
        "no journal is named, and there is no home directory",
        hint=f"set HOME, or {DATA_DIR_VARIABLE}, or use --data-dir",
    )


def config_file() -> Path:
    """Where the file is: ``CREW_JOURNAL_CONFIG``, else ``crew-journal/config.toml`` of the user's configuration."""
    if named := os.environ.get(CONFIG_VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "crew-journal" / "config.toml"


def read_config() -> dict[str, Any]:
    """The configuration file; empty if there is none.

    Raises:
        InvalidQuery: If it is not valid.
    """
    try:
        path = config_file()
        content = path.read_text("utf-8")
    except (FileNotFoundError, RuntimeError):
        return {}
    except UnicodeDecodeError as error:
        raise InvalidQuery(f"{path} is not TOML: {error}", hint="correct it, or delete it") from None
    import tomllib  # imported late, because most people have no such file, and hooks pay for each import

    try:
        return tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise InvalidQuery(f"{path} is not TOML: {error}", hint="correct it, or delete it") from None


def _context(variables: Mapping[str, str]) -> Place:
    """The place that the context in use names, or the setting ``data_dir`` of the file."""
    config = read_config()
    name = variables.get(CONTEXT_VARIABLE) or config.get("context")
    if not name:
        settings = config.get("settings")
        named = settings.get("data_dir") if isinstance(settings, dict) else None
        if named:
            return Place("[settings] of the file", data_dir=Path(str(named)))
        return Place("context", absent="none is in use")
    contexts = config.get("contexts")
    known = contexts if isinstance(contexts, dict) else {}
    fields = known.get(name)
    if not isinstance(fields, dict):
        names = ", ".join(sorted(known)) or "none"
        raise NotFound(f"there is no context {name}", hint=f"there are: {names}; `crew-journal journal add` makes one")
    url, folder = fields.get("url"), fields.get("data_dir")
    return Place(
        f"context {name}",
        url=url,
        data_dir=None if folder is None or url else Path(folder),
        absent="" if url or folder else "it names no journal",
        token=fields.get("token"),
        workspace=fields.get("workspace"),
    )


def find(
    url: str | None,
    token: str | None,
    data_dir: str | os.PathLike[str] | None,
    folder: Path | None = None,
) -> ServiceAddress:
    """Determine the service and the token; see :func:`places`.

    Raises:
        NotFound: If no URL is given and no service uses the data directory.
        NotAllowed: If the data directory was found in a folder and is not trusted.
        NotAuthenticated: If there is no token.
        InvalidQuery: If the URL is not valid.
    """
    return address_of(located(url, data_dir, folder), token)


def address_of(place: Place, token: str | None = None) -> ServiceAddress:
    """The service at a place, and the token: the given one, else that of the environment, of the place, of its owner.

    A token of the environment belongs to the address there, if there is one, and is not sent to a data directory or context.

    Raises:
        NotFound: If no service uses the data directory.
        NotAuthenticated: If there is no token.
        InvalidQuery: If the URL is not valid.
    """
    named = place.url
    belongs = place.origin in ("--url", URL_VARIABLE) or not os.environ.get(URL_VARIABLE)
    token = token or (os.environ.get(TOKEN_VARIABLE) if belongs else None) or place.token
    if named is None:
        from ..data_dir import read_owner_token  # imported late, because a named service needs no data directory

        assert place.data_dir is not None, "a place without an address has a data directory"
        named = _address_of(place.data_dir)
        token = token or read_owner_token(place.data_dir)
    if not token:
        raise NotAuthenticated("there is no token", hint=f"give one with --token, or set {TOKEN_VARIABLE}")
    parts = urlsplit(named)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidQuery("not a valid URL", hint="write it like http://127.0.0.1:9119", field="url")
    return ServiceAddress(named.rstrip("/"), token)


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
