"""Values that a shell completes and that no index can hold: workspaces of the running service, names of journals.

Invariant: a completion is silent and never starts a journal; what cannot be found completes to nothing. It needs
the standard library only, because a person waits for it.
"""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import urlsplit

from ..client.find import find, read_config

_TIMEOUT_S: Final = 1.0
"""Seconds for the running service; a person waits."""


def workspaces(incomplete: str) -> list[str]:
    """The workspaces that the token may read."""
    import http.client  # imported late, because every command imports this module

    try:
        address = find(None, None, None)
        parts = urlsplit(address.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        connection.request("GET", "/v1/workspaces", headers={"Authorization": f"Bearer {address.token}"})
        found = json.loads(connection.getresponse().read())["workspaces"]
        return sorted(each["workspace_id"] for each in found if each["workspace_id"].startswith(incomplete))
    except Exception:  # a message would be read as a completion
        return []


def journals(incomplete: str) -> list[str]:
    """The names of journals in the configuration file."""
    try:
        return sorted(name for name in read_config()["contexts"] if name.startswith(incomplete))
    except Exception:  # a message would be read as a completion
        return []
