"""Sends JSON to one URL of a model server.

Invariant: no answer is read beyond its limit, and what the server says is shown without the key. Redirects are not followed:
they could lead the key elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from .loopback import is_loopback

CONNECT_TIMEOUT_S: Final = 5.0
SHOWN_CHARS: Final = 200
"""Characters of a server's error text that are kept."""


class AnswerTooLong(Exception):
    """The answer has more bytes than are read."""


class BrokenOff(httpx.RemoteProtocolError):
    """The connection ended within the answer."""


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
        api_key: Sent as a bearer token; None for none.
        max_bytes: Most bytes of an answer.

    Raises:
        ValueError, httpx.InvalidURL: ``base_url`` is not a valid URL.
    """

    def __init__(self, base_url: str, path_of: Callable[[str], str], *, api_key: str | None, max_bytes: int) -> None:
        self.where = base_url if "://" in base_url else f"http://{base_url}"
        self._key = api_key
        self._max_bytes = max_bytes
        urlsplit(self.where).port  # noqa: B018 - raises on a port that is none, which httpx does not notice
        base = httpx.URL(self.where)
        self._url = base.copy_with(path=path_of(base.path.rstrip("/")))
        local = is_loopback(self.where)  # a proxy from the environment cannot reach the loopback interface
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
            trust_env=not local,
            headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
        )

    async def post(self, body: dict[str, Any]) -> Reply:
        """Send one request.

        Raises:
            AnswerTooLong: The answer is longer than ``max_bytes``.
            BrokenOff: The connection ended within the answer.
            httpx.HTTPError, OSError: The server cannot be reached.
        """
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

    def said(self, reply: Reply) -> str:
        """The beginning of an answer, for an error."""
        said = reply.content.decode("utf-8", "replace")
        return (said.replace(self._key, "…") if self._key else said)[:SHOWN_CHARS]

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
