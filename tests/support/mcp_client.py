"""The official SDK's client of tools, connected to a service over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import httpx
import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from support.stack import Stack


def connected(stack: Stack, token: str, mode: str = "auto", **query: str) -> AbstractAsyncContextManager[Client]:
    """A client on a stack."""
    return connected_to(stack.url, token, mode, **query)


@asynccontextmanager
async def connected_to(service: str, token: str, mode: str = "auto", **query: str) -> AsyncIterator[Client]:
    """A client on the service of a URL."""
    headers = {"Authorization": f"Bearer {token}"}
    url = str(httpx.URL(f"{service}/mcp", params=query))
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=cast(Any, mode)) as client,
    ):
        yield client
