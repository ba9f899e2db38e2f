"""The official SDK's client of tools, connected to a stack over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from support.stack import Stack


@asynccontextmanager
async def connected(stack: Stack, token: str, mode: str = "auto", **query: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    url = str(httpx.URL(f"{stack.url}/mcp", params=query))
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=cast(Any, mode)) as client,
    ):
        yield client
