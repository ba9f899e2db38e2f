"""Crew Journal: memory for crews of agents. The root of the checkout is this package.

It exports the client and the errors: ``from crew_journal import CrewJournal, NotFound``. They are imported at first use
(PEP 562), because every command and every module imports this package first.
"""

from importlib import import_module

TYPE_CHECKING = False  # not from typing: a file typing.py in the caller's folder would run before it is forgotten

if TYPE_CHECKING:
    from .schemas.core.errors import *  # noqa: F403 - every error, without a list to keep
    from .services.client import AsyncCrewJournal as AsyncCrewJournal
    from .services.client import CrewJournal as CrewJournal
else:  # hidden from type checkers: they would accept every misspelt name

    def __getattr__(name: str) -> object:
        if not name[:1].isupper():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = ".services.client" if name.endswith("CrewJournal") else ".schemas.core.errors"
        return getattr(import_module(module, __name__), name)
