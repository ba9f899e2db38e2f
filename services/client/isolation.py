"""Keeps Python files of the caller's folder from being imported, such as ``typing.py`` of a cloned repository.

Invariant: a process that we start ignores ``PYTHONPATH`` and the current folder; a command that a person starts removes
both from the import path before other imports. This module imports only what the interpreter has loaded already.
"""

# ruff: noqa: PTH100, PTH109 - pathlib is not imported before the foreign places are forgotten
import os
import sys

_PACKAGES = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
"""The folder from which this package was imported, if it is not an editable install."""


CLI_MODULE = "crew_journal.services.cli"
"""The module of the command ``crew-journal``."""


def _python_path() -> list[str]:
    given = os.environ.get("PYTHONPATH")
    return [os.path.abspath(entry) for entry in given.split(os.pathsep)] if given else []


def isolated_python() -> list[str]:
    """This interpreter with the options ``-E -P``; to be followed by ``-m`` and a module.

    This is ``-I`` without ``-s``, which would hide packages from ``pip install --user``. Packages from ``pip install
    --target`` are found only by ``PYTHONPATH``, which is then kept.
    """
    return [sys.executable, *([] if _PACKAGES in _python_path() else ["-E"]), "-P"]


def isolate() -> None:
    """Remove the current folder and ``PYTHONPATH`` from the import path, except the folder of this package."""
    try:
        here = os.getcwd()
        foreign = set() if sys.flags.ignore_environment else set(_python_path()) - {_PACKAGES}
    except OSError:  # the folder was removed, so nothing can be imported from it
        return
    if not sys.flags.safe_path and sys.path[:1] in ([""], [here]) and here != _PACKAGES:
        del sys.path[0]
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) not in foreign]
