"""Sends JSON to one URL of a model server.

Invariant: no answer is read beyond its limit, and errors hold the answer without the key. Redirects are not followed: they
could send the key to another server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from ...schemas.errors import CrewJournalError
from .loopback import is_loopback

CONNECT_TIMEOUT_S: Final = 5.0
"""Seconds to connect; our event loop may be busy for one second. Starts and recalls have shorter limits of their own."""
SHOWN_CHARS: Final = 200
"""Characters of a server's error text that are kept."""
OK: Final = 200
NOT_FOUND: Final = 404
REFUSED: Final = frozenset({401, 403})
"""Status codes that concern the key."""
INPUT_STATUSES: Final = frozenset({400, 413, 422})
"""Status codes that concern the input. All others from 400 on concern access, load or another kind of server."""


class AnswerTooLong(Exception):
    """The answer has more bytes than are read."""


class BrokenOff(Exception):
    """The connection ended within the answer."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The words of a server's errors.

    Attributes:
        server: What it is called.
        setting: The variable that names it, and an example: ``OLLAMA_HOST to http://HOST:PORT``.
        key: The variable of its key.
        unavailable: The error while it cannot be used.
    """

    server: str
    setting: str
    key: str
    unavailable: type[CrewJournalError]


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class JsonServer:
    """Connects at the first request.

    Args:
        base_url: URL of the server; without a scheme, HTTP.
        path_of: The path of the requests, from that of the base URL, which has no slash at its end.
        naming: The words of errors.
        api_key: Sent as a bearer token; None for none.
        max_bytes: Most bytes of an answer.

    Raises:
        CrewJournalError: ``base_url`` is not a valid URL; as ``naming`` says.
    """

    def __init__(
        self, base_url: str, path_of: Callable[[str], str], naming: Naming, *, api_key: str | None, max_bytes: int
    ) -> None:
        self.where = base_url if "://" in base_url else f"http://{base_url}"
        self._naming = naming
        self._key = api_key
        self._max_bytes = max_bytes
        try:
            urlsplit(self.where).port  # noqa: B018 - raises on an invalid port, which httpx does not notice
            base = httpx.URL(self.where)
        except (ValueError, httpx.InvalidURL) as error:
            raise naming.unavailable(f"{base_url!r} is not a valid URL", hint=f"set {naming.setting}") from error
        self._url = base.copy_with(path=path_of(base.path.rstrip("/")))
        local = is_loopback(self.where)  # a proxy from the environment cannot reach the loopback interface
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
            trust_env=not local,
            headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
        )

    async def post(self, body: dict[str, Any], limit_s: float) -> Reply:
        """Send one request.

        Raises:
            AnswerTooLong: The answer is longer than ``max_bytes``.
            BrokenOff: The connection ended within the answer.
            CrewJournalError: The server cannot be reached, or did not answer within ``limit_s`` seconds; as ``naming``
                says.
        """
        naming = self._naming
        try:
            async with asyncio.timeout(limit_s):
                return await self._post(body)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise naming.unavailable(
                f"{naming.server} at {self.where} did not answer within {limit_s:g} s",
                hint="check whether it is busy or still loading the model",
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise naming.unavailable(
                f"{naming.server} at {self.where} cannot be reached ({type(error).__name__})",
                hint=f"start it, or set {naming.setting}",
            ) from error

    def fault(self, reply: Reply, model: str) -> tuple[str, str]:
        """The message and the hint of an error for a reply with another status than 200."""
        text = reply.content.decode("utf-8", "replace")
        text = (text.replace(self._key, "…") if self._key else text)[:SHOWN_CHARS]
        hint = "read the server's log, and check the URL"
        if reply.status == NOT_FOUND:
            hint = f"check the URL, and whether the server has {model}"
        elif reply.status in REFUSED:
            hint = f"set {self._naming.key} to a key that may use this model"
        return f"{self._naming.server} at {self.where} answered {reply.status}: {text}", hint

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _post(self, body: dict[str, Any]) -> Reply:
        async with self._client.stream("POST", self._url, json=body) as response:
            read = bytearray()
            try:
                async for chunk in response.aiter_bytes():
                    read += chunk
                    if len(read) > self._max_bytes:
                        raise AnswerTooLong
            except httpx.RequestError as error:
                raise BrokenOff(str(error)) from error
            return Reply(response.status_code, response.headers, bytes(read))
