"""The command's entry point: a hook imports no command line, a command imports no other command.

Why: a hook runs at every prompt of a person; importing the command line's libraries takes ten times as long as the hook.
Importing all commands takes a quarter of the CPU time of ``up`` until it is ready, and ten times that of a help text.
Invariant: this module imports nothing that a file in the caller's folder or ``PYTHONPATH`` could replace before ``script``
has forgotten these places.
"""

import sys

from ..client.isolation import isolate

_PROGRAM = "--program"
_DEFAULT_PROGRAM = "claude-code"
_INTERRUPTED = 130
"""As in ``run.INTERRUPTED``, which is not imported for a hook."""


def script() -> int:
    """Run the command; no module from the caller's folder is imported."""
    isolate()
    try:
        return main()
    except KeyboardInterrupt:  # while modules are imported
        return _INTERRUPTED


def main() -> int:
    """Run the command; returns its exit code."""
    if len(sys.argv) >= 3 and sys.argv[1] == "hook" and not sys.argv[2].startswith("-"):
        from ..client.hook import run as run_hook

        given = dict(zip(sys.argv[3::2], sys.argv[4::2], strict=False))
        return run_hook(sys.argv[2], given.get(_PROGRAM, _DEFAULT_PROGRAM), place=given)
    if sys.argv[1:2] == ["hook"]:  # without an event, or with --help
        from ..client.command import main as client

        return client(sys.argv[1:], "crew-journal")
    from .lazy import start

    return start(sys.argv[1:])
