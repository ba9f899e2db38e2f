"""How every command runs: one application, its arguments, and one way to fail.

Invariant: every failure leaves as one message on stderr and the exit code of DESIGN §10 (0 ok, 1 error, 2 usage,
3 not allowed, 4 not found, 5 unavailable, 6 verification failed); a reader that closes the pipe is not a failure.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
from typer import Option

from ...schemas.errors import CrewJournalError, InvalidQuery
from .configuration import configured
from .output import JSON_FLAG, report_error, safe, say, show

NAME: Final = "crew-journal"
INTERRUPTED: Final = 130
"""What shells expect of a command that Ctrl-C ended: 128 + SIGINT."""
_ClickError: Final = typer.BadParameter.__mro__[2]
"""Root of what typer raises for wrong usage; typer itself exports only this branch of it."""


@contextmanager
def imports() -> Iterator[None]:
    """Import without searching for garbage: of 1.3 s of CPU until ``up`` was ready, 0.15 s found none."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # else native modules complain at the end of what was never collected


def new_app() -> typer.Typer:
    """The application ``crew-journal`` without commands."""
    app = typer.Typer(
        name=NAME,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    answer = {"name": NAME, "version": version(NAME)}
    show(answer, JSON_FLAG in sys.argv, lambda answer: print(safe(" ".join(answer.values()))))
    raise typer.Exit


def _root(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Memory for crews of agents: an append-only journal, views folded from it, and recall."""


def run(app: typer.Typer, argv: Sequence[str] | None = None) -> int:
    """Run ``app`` with ``argv``, by default the arguments of the process; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = JSON_FLAG in arguments
    try:
        with configured(arguments):
            answer = app(args=arguments, prog_name=NAME, standalone_mode=False)
        sys.stdout.flush()
        return answer if isinstance(answer, int) else 0
    except SystemExit as exit_:  # typer's own answer to a closed pipe is 1
        if isinstance(exit_.__context__, BrokenPipeError):
            return _reader_left()
        return exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except BrokenPipeError:  # when the rest is flushed
        return _reader_left()
    except KeyboardInterrupt:
        return INTERRUPTED
    except typer.Abort:  # Ctrl-C, or the end of stdin, at a question
        say("nothing was changed")
        return INTERRUPTED
    except Exception as error:
        return _failed(error, as_json)


def _failed(error: Exception, as_json: bool) -> int:
    if isinstance(error, _ClickError):
        return _misused(error, as_json)
    if isinstance(error, OSError) and error.filename is not None:
        hint = "check the path, your permission to write there, and that the disk is neither full nor read-only"
        error = CrewJournalError(f"{error.filename}: {error.strerror}", hint=hint)
    if not isinstance(error, CrewJournalError):
        if os.environ.get("CREW_JOURNAL_LOG_LEVEL") == "debug":
            raise error
        error = CrewJournalError(
            f"unexpected {type(error).__name__}: {error}",
            hint="this is a bug in Crew Journal; CREW_JOURNAL_LOG_LEVEL=debug shows where it happened",
        )
    report_error(error, as_json=as_json)
    return error.exit_code


def _misused(error: Any, as_json: bool) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message())
    else:
        path = error.ctx.command_path if getattr(error, "ctx", None) else NAME
        report_error(InvalidQuery(error.format_message(), hint=f"see `{path} --help`"), as_json=as_json)
    return InvalidQuery.exit_code


def _reader_left() -> int:
    """``| head`` has read enough: redirect stdout, else the interpreter complains at its exit."""
    if sys.__stdout__ is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
    return 0
