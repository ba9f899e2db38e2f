"""``sidecar``: the memory routes of the service on loopback, without a token, for one agent."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Final

from ...schemas.core.errors import Unavailable
from .commands import Option
from .connection import resolve
from .options import Json, Where, Workspace
from .output import show
from .run import stopping

if TYPE_CHECKING:
    from .connection import Target

DEFAULT_LISTEN: Final = "127.0.0.1:9120"


def sidecar(
    agent: Annotated[str, Option("--agent", help="The agent in whose name requests are sent.")],
    crew: Annotated[str | None, Option("--crew", help="Its crew.")] = None,
    listen: Annotated[str, Option("--listen", help="Where to listen; loopback only.")] = DEFAULT_LISTEN,
    workspace: Workspace = None,
    *,
    where: Where,
    json_output: Json = False,
) -> None:
    """Serve an agent's memory on loopback without a token, until it is stopped.

    Forwards POST /memory/search, GET /memory/status, POST /memory/reindex and POST /memory/write to the service in the
    agent's name, and nothing else.
    """
    from .sidecar_server import ActingAgent, Sidecar, listen_of

    def find() -> Target | None:
        return resolve(where)

    address = listen_of(listen)
    if where.url is None:
        _ = where.folder  # refused now if it is not trusted, not with the first request
    try:
        server = Sidecar(address, ActingAgent(agent, crew, workspace), find)
    except OSError as error:
        raise Unavailable(f"cannot listen on {listen}: {error.strerror}", hint="name a free port: --listen") from None
    stopped = threading.Event()
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    with stopping(stopped):
        serving.start()
        try:
            show(
                {"url": server.url, "agent_id": agent},
                json_output,
                lambda answer: print(f"agent {answer['agent_id']}: {answer['url']}", flush=True),
            )
            stopped.wait()
        finally:
            server.shutdown()
            server.server_close()
