"""The client of Crew Journal: ``CrewJournal`` (sync) and ``AsyncCrewJournal``; needs only schemas and httpx.

``strip_injected`` (both), ``strip_nudges`` and ``strip_recalled_memory`` remove from a model's answer the texts that
this client put into the prompt. Names are imported at first use (PEP 562), because hooks and the proxy of tools need
none of them.
"""

from importlib import import_module

TYPE_CHECKING = False  # not imported from typing, because a file typing.py in the caller's folder would run

if TYPE_CHECKING:
    from ...schemas.context.nudges import strip_injected as strip_injected
    from ...schemas.context.nudges import strip_nudges as strip_nudges
    from ...schemas.context.nudges import strip_recalled_memory as strip_recalled_memory
    from .aio import AsyncCrewJournal as AsyncCrewJournal
    from .generated_sync import CrewJournal as CrewJournal
else:
    _PLACES = {
        "AsyncCrewJournal": ".aio",
        "CrewJournal": ".generated_sync",
        "strip_injected": "...schemas.context.nudges",
        "strip_nudges": "...schemas.context.nudges",
        "strip_recalled_memory": "...schemas.context.nudges",
    }

    def __getattr__(name: str) -> object:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_PLACES[name], __name__), name)
