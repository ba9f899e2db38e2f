"""A runtime inside this process, for commands that find no running ``up``.

Invariant: it lives in a thread with an event loop of its own and is stopped, drained, before the command ends; the
command itself talks to it over HTTP like to any other service, so there is one way to do each thing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from ...schemas.errors import Unavailable
from .logs import configure_logging

if TYPE_CHECKING:
    from ...schemas.settings import Settings

START_TIMEOUT_S: Final = 180.0
"""Seconds until the runtime must be up: after a crash the broker re-reads its blocks (up to 120 s) and the views
catch up; an ordinary start takes under 4."""
STOP_TIMEOUT_S: Final = 60.0
"""Seconds for draining; then the thread is left to the end of the process."""


class LocalRuntime:
    """A context manager that starts the full runtime and stops it.

    Args:
        settings: Its settings; ``http`` should name port 0.
        log: Told what the runtime starts.
    """

    def __init__(self, settings: Settings, log: Callable[[str], None] | None = None) -> None:
        self._settings = settings
        self._log = log
        self._started: Future[tuple[str, str]] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="runtime", daemon=True)

    @property
    def http_url(self) -> str:
        """Where it answers."""
        return self._started.result(0)[0]

    @property
    def owner_token(self) -> str:
        """The owner's token of its data directory."""
        return self._started.result(0)[1]

    def __enter__(self) -> Self:
        configure_logging(self._settings.log_level)
        self._thread.start()
        try:
            self._started.result(START_TIMEOUT_S)
        except TimeoutError:
            self._stop()
            raise Unavailable(
                f"the journal in {self._settings.data_dir} did not start within {START_TIMEOUT_S:.0f} s",
                hint="run `crew-journal doctor`, or `crew-journal up` to see what takes so long",
            ) from None
        except BaseException:  # KeyboardInterrupt while it starts
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        loop, leave = self._loop, self._leave
        if loop is not None and leave is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(leave.set)
        self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            elif isinstance(error, Exception):
                return  # the command sees its requests fail and says so
            else:
                raise

    async def _main(self) -> None:
        from ..runtime import Runtime

        self._loop, self._leave = asyncio.get_running_loop(), asyncio.Event()
        runtime = Runtime(self._settings, log=self._log)
        starting = asyncio.create_task(runtime.start())
        leaving = asyncio.create_task(self._leave.wait())
        try:
            await asyncio.wait({starting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                self._started.set_result((runtime.http_url, runtime.owner_token))
                closed = asyncio.create_task(runtime.wait_closed())
                await asyncio.wait({closed, leaving}, return_when=asyncio.FIRST_COMPLETED)
                closed.cancel()
        finally:
            starting.cancel()
            leaving.cancel()
            await runtime.stop()
