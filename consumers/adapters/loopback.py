"""Whether a model server runs on this machine, and whether its port is open.

Why: on most machines without Ollama its port is closed, which is known in a millisecond; the HTTP client and Ollama's own
take 0.3 s of CPU to import. Invariant: imports nothing but the standard library.
"""

from __future__ import annotations

import asyncio
import ipaddress
from urllib.parse import SplitResult, urlsplit


def is_loopback(host: str) -> bool:
    """Whether a server's address is of this machine, which no proxy reaches."""
    name = _split(host).hostname or "localhost"
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return address.is_loopback or address.is_unspecified


async def is_closed(host: str) -> bool:
    """Whether the port of a server on this machine refuses connections; False where that is not certain."""
    try:
        where = _split(host)
        if where.port is None or not is_loopback(host):
            return False
        _, writer = await asyncio.open_connection(where.hostname, where.port)
    except ConnectionRefusedError:
        return True
    except (OSError, ValueError):  # ValueError: not an address
        return False
    writer.close()
    return False


async def listens(host: str, within_s: float = 1.0) -> bool:
    """Whether a server takes connections at an address, which may be that of another machine."""
    try:
        where = _split(host)
        async with asyncio.timeout(within_s):
            _, writer = await asyncio.open_connection(where.hostname, where.port)
    except (OSError, TimeoutError, ValueError):
        return False
    writer.close()
    return True


def _split(host: str) -> SplitResult:
    return urlsplit(host if "://" in host else f"http://{host}")
