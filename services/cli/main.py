"""The command ``crew-journal``: its commands by name, and one way for all of them to fail.

Invariant: every failure leaves as one message on stderr and the exit code of DESIGN §10 (0 ok, 1 error, 2 usage,
3 not allowed, 4 not found, 5 unavailable, 6 verification failed); a reader that closes the pipe is not a failure.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from typer import Option

from ...schemas.errors import CrewJournalError, InvalidQuery
from ...schemas.operations.embeddings import ACTIVATE_MODEL
from . import learning
from .administration import tokens, workspaces
from .agents import agents, crews
from .backing_up import backup, restore
from .broker import broker
from .bundles import bundles
from .checks import doctor
from .cleaning import clean
from .configuration import configured
from .connect import connect
from .contexts import config, contexts
from .demo import demo
from .embeddings import app as embeddings
from .embeddings import embedder
from .evaluate import evaluate
from .exporting import export
from .health import health
from .importing.command import import_command
from .journal import get, list_entries, tail
from .knowledge import knowledge
from .mcp import mcp
from .memory import memory
from .mirror.command import mirror
from .operate import dlq, rebuild, status, verify
from .operations import add_commands, command_of
from .operators import operators
from .output import JSON_FLAG, report_error, say, show
from .palace import layered, palace
from .provider_parity import provider_parity
from .publishing import publish, schema
from .recall import recall
from .salvaging import salvage
from .sidecar.command import sidecar
from .up import up
from .work import work

NAME: Final = "crew-journal"
INTERRUPTED: Final = 130
"""What shells expect of a command that Ctrl-C ended: 128 + SIGINT."""
_LINE: Final = 57
"""Characters of a command's help beside its name in 80 columns."""
_ClickError: Final = typer.BadParameter.__mro__[2]
"""Root of what typer raises for wrong usage; typer itself exports only this branch of it."""

app = typer.Typer(
    name=NAME,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
USING: Final = (
    up,
    work,
    mcp,
    connect,
    demo,
    publish,
    import_command,
    list_entries,
    get,
    tail,
    recall,
    evaluate,
    schema,
    export,
    mirror,
    sidecar,
)
OPERATING: Final = (status, health, doctor, backup, restore, rebuild, verify, salvage, clean, provider_parity)
RENAMED: Final = {
    "import_command": "import",
    "list_entries": "list",
    "evaluate": "eval",
    "provider_parity": "provider-parity",
}
"""Commands whose names are words of Python, or hold a hyphen."""
for command in (*USING, *OPERATING):
    app.command(RENAMED.get(command.__name__, command.__name__))(command)
GROUPS: Final = {
    "memory": memory,
    "dlq": dlq,
    "embedder": embedder,
    "embeddings": embeddings,
    "agent": agents,
    "crew": crews,
    "consolidate": learning.consolidate,
    "proposal": learning.proposals,
    "lesson": learning.lessons,
    "operator": operators,
    "bundle": bundles,
    "token": tokens,
    "workspace": workspaces,
    "kg": knowledge,
    "palace": palace,
    "context": contexts,
    "config": config,
    "layered": layered,
    "broker": broker,
}
for name, group in GROUPS.items():
    app.add_typer(group, name=name)
add_commands(app, GROUPS)
embedder.command("activate")(command_of(ACTIVATE_MODEL))  # its name before there was `embeddings`


def short_help(text: str) -> str:
    """What a list of commands shows of a help text: its first sentence, up to a colon or semicolon if it is long."""
    sentence = re.split(r"\.(?:\s|$)", " ".join(text.split()), maxsplit=1)[0]
    return sentence if len(sentence) <= _LINE else re.split("[:;] ", sentence, maxsplit=1)[0]


def _shorten(group: typer.Typer) -> None:
    for command in group.registered_commands:  # without a short help, typer cuts the text at the end of the line
        command.short_help = short_help(command.help or (command.callback and command.callback.__doc__) or "")


for group in (app, *GROUPS.values()):
    _shorten(group)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    answer = {"name": NAME, "version": version(NAME)}
    show(answer, JSON_FLAG in sys.argv, lambda answer: print(*answer.values()))
    raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Memory for crews of agents: an append-only journal, views folded from it, and recall."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line with ``argv``, by default the arguments of the process; returns the exit code."""
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


if __name__ == "__main__":
    sys.exit(main())
