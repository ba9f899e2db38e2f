"""Runs all commands: the application, its arguments, and the handling of errors.

Invariant: every failure gives one message on stderr and the exit code of DESIGN §10 (0 ok, 1 error, 2 usage, 3 not
allowed, 4 not found, 5 unavailable, 6 verification failed); a closed pipe is not a failure.
"""

from __future__ import annotations

import atexit
import difflib
import gc
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import click
from click.shell_completion import shell_complete

from ...schemas.core.errors import CrewJournalError, InvalidQuery, NotAuthenticated
from ..printable import safe
from .commands import CommandGroup
from .configuration import configured
from .output import JSON_FLAG, report_error, say, show

NAME: Final = "crew-journal"
INTERRUPTED: Final = 130
"""What shells expect of a command that Ctrl-C ended: 128 + SIGINT."""
_SHOW_COMPLETION: Final = "Show completion for the current shell, to copy it or customize the installation."
COMPLETE_VARIABLE: Final = "_CREW_JOURNAL_COMPLETE"
"""Variable that a shell sets when it requests completions."""


_HTTP_HEADER: Final = "Authorization: Bearer"
_NO_FILE: Final = re.compile(r"there is no file(?: or directory)? (.+)\Z")
"""How commands say that a file is missing."""
_NOT_ONE_OF: Final = re.compile(r"(\S+) is not one of (.+)\Z")
"""How commands say which values there are."""


class UnknownCommand(click.UsageError):
    """A command that does not exist.

    Attributes:
        instead: What to type.
    """

    def __init__(self, name: str, near: list[str], rest: Sequence[str], ctx: click.Context) -> None:
        super().__init__(f"there is no command {name!r}", ctx)
        self.instead = [shlex.join((*ctx.command_path.split(), *command.split(), *rest)) for command in near[:1]]


@contextmanager
def imports() -> Iterator[None]:
    """Import without searching for garbage: of 1.3 s of CPU until ``up`` was ready, 0.15 s found none."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # otherwise native modules report uncollected objects at exit


def new_app() -> CommandGroup:
    """The application ``crew-journal`` without commands."""
    return CommandGroup(
        NAME,
        params=[
            _switch("version", _print_version, "Print the version and exit."),
            _switch("install-completion", _install_completion, "Install completion for the current shell."),
            _switch("show-completion", _show_completion, _SHOW_COMPLETION),
        ],
        help="Memory for crews of agents: an append-only journal, views folded from it, and recall.",
        context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
        epilog="Every command of a group also works without the name of its group.",
    )


def _switch(name: str, action: Callable[[click.Context], None], text: str) -> click.Option:
    """An option that does something instead of a command."""

    def act(context: click.Context, _option: click.Parameter, given: bool) -> None:
        if given and not context.resilient_parsing:
            action(context)
            context.exit()

    return click.Option([f"--{name}"], is_flag=True, is_eager=True, expose_value=False, callback=act, help=text)


def _print_version(_context: click.Context) -> None:
    from importlib.metadata import version

    answer = {"name": NAME, "version": version(NAME)}
    show(answer, JSON_FLAG in sys.argv, lambda answer: print(safe(" ".join(answer.values()))))


def _install_completion(context: click.Context) -> None:
    """Let the shell ask for completions: bash and zsh from the file that they read at their start, fish from its own."""
    shell, script = _completion(context)
    home = Path.home()
    if shell == "fish":
        file = home / ".config" / "fish" / "completions" / f"{NAME}.fish"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(script, "utf-8")
    else:
        file, line = home / f".{shell}rc", f'eval "$({COMPLETE_VARIABLE}={shell}_source {NAME})"'
        if not file.exists() or line not in file.read_text("utf-8"):
            with file.open("a", encoding="utf-8") as start:
                start.write(f"\n{line}\n")
    print(f"{shell} completion installed in {file}\nCompletion will take effect once you restart the terminal")


def _show_completion(context: click.Context) -> None:
    print(_completion(context)[1])


def _completion(context: click.Context) -> tuple[str, str]:
    """The name of the user's shell, and the script that lets it complete.

    Raises:
        InvalidQuery: If completion is not available for the shell.
    """
    from click.shell_completion import get_completion_class

    shell = Path(os.environ.get("SHELL", "")).name
    found = get_completion_class(shell)
    if found is None:
        raise InvalidQuery(f"there is no completion for the shell {shell!r}", hint="use bash, zsh or fish")
    return shell, found(context.command, {}, NAME, COMPLETE_VARIABLE).source()


def run(app: click.Group, argv: Sequence[str] | None = None) -> int:
    """Run ``app`` with ``argv``, by default the arguments of the process; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _invoked(app, arguments, as_json=JSON_FLAG in arguments)
        sys.stdout.flush()  # also of a help text: at the interpreter's exit it would be too late to handle
        return code
    except BrokenPipeError:
        return _reader_left()


def _invoked(app: click.Group, arguments: Sequence[str], *, as_json: bool) -> int:
    try:
        with configured(arguments):
            if instruction := os.environ.get(COMPLETE_VARIABLE):
                return shell_complete(app, {}, NAME, COMPLETE_VARIABLE, instruction)
            with app.make_context(NAME, list(arguments)) as context:
                answer = app.invoke(context)
        return answer if isinstance(answer, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except click.Abort:  # Ctrl-C, or the end of stdin, at a question
        say("nothing was changed")
        return INTERRUPTED
    except Exception as error:
        return _failed(error, arguments, as_json)


def _failed(error: Exception, arguments: Sequence[str], as_json: bool) -> int:
    if isinstance(error, click.ClickException):
        return _misused(error, arguments, as_json)
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
    if isinstance(error, NotAuthenticated) and _HTTP_HEADER in error.hint:  # the hint of the service for programs
        error.hint = (
            "give --token as `crew-journal token create` printed it; without --token, you are the journal's owner"
        )
    report_error(error, as_json=as_json)
    return error.exit_code


_NEAR: Final = 0.7
"""Least similarity (``difflib``) of an option that is suggested in the place of an unknown one."""


def _misused(error: click.ClickException, arguments: Sequence[str], as_json: bool) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message())
    else:
        if isinstance(error, click.NoSuchOption):  # click also suggests --json for --as-of
            near = difflib.get_close_matches(error.option_name, error.possibilities or (), cutoff=_NEAR)
            error = click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
        report_error(InvalidQuery(error.format_message(), hint=_instead(error, arguments)), as_json=as_json)
    return InvalidQuery.exit_code


def _instead(error: click.ClickException, arguments: Sequence[str]) -> str:
    """What to type instead, in one line."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context else NAME
    see = f"see `{path} --help`"
    if isinstance(error, UnknownCommand):
        return f"type `{error.instead[0]}`" if error.instead else f"`{path} --help` lists the commands"
    if isinstance(error, click.NoSuchOption):
        return (
            f"type `{_retyped(arguments, error.option_name, error.possibilities[0])}`" if error.possibilities else see
        )
    if isinstance(error, click.BadOptionUsage):
        complete = _retyped(arguments, error.option_name, f"{error.option_name} VALUE")
        return f"write a value after {error.option_name}: `{complete}`"
    if isinstance(error, click.MissingParameter) and error.param is not None and context is not None:
        what = getattr(error.param, "help", None) or ""
        if isinstance(error.param, click.Option):
            return f"add {error.param.opts[0]}: {what}"
        return f"type `{path} {' '.join(_usage(context))}`: {what}"
    if isinstance(error, click.BadParameter):
        return _better_value(error, arguments) or see
    if context is not None and "extra argument" in error.format_message():
        return f"quote a text of several words; type `{path} {' '.join(_usage(context))}`"
    return see


def _usage(context: click.Context) -> list[str]:
    return [piece for piece in context.command.collect_usage_pieces(context) if piece != "[OPTIONS]"] or ["[OPTIONS]"]


def _better_value(error: click.BadParameter, arguments: Sequence[str]) -> str:
    """A value that the parameter takes; empty if the message says all that is known."""
    param, value = error.param, None
    kind = None if param is None else param.type
    option = param.opts[0] if isinstance(param, click.Option) else ""
    if option:
        given = (
            [each for each in arguments if each in param.opts or each.partition("=")[0] in param.opts] if param else []
        )
        value = arguments[arguments.index(given[-1]) + 1] if given and arguments[-1] != given[-1] else None
    if isinstance(kind, click.Choice):
        near = difflib.get_close_matches(value or "", map(str, kind.choices), n=1, cutoff=0.5)
        return f"type `{option} {(near or [str(kind.choices[0])])[0]}`"
    if isinstance(kind, click.types.IntParamType):
        return f"type a whole number, like `{f'{option} 10'.strip()}`"
    if isinstance(kind, click.types.FloatParamType):
        return f"type a number, like `{f'{option} 0.5'.strip()}`"
    if "is not JSON" in error.message or "JSON object" in error.message:
        return f"""write it in single quotes: {error.param_hint} '{{"key": "value"}}'"""
    if unknown := _NOT_ONE_OF.search(error.message):
        near = difflib.get_close_matches(unknown[1], unknown[2].split(", "), n=1, cutoff=0.5)
        return f"type `{_retyped(arguments, unknown[1], near[0])}`" if near else ""
    if missing := _NO_FILE.search(error.message):
        path = Path(missing[1])
        names = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, names, n=1)
        return (
            f"type `{_retyped(arguments, missing[1], str(path.with_name(near[0])))}`"
            if near
            else "check the path of the file"
        )
    return ""


def _retyped(arguments: Sequence[str], wrong: str, right: str) -> str:
    """The command line with one word replaced."""
    words = [
        f"{right}{each[len(wrong) :]}" if each == wrong or each.startswith(f"{wrong}=") else each for each in arguments
    ]
    return " ".join((NAME, *(word if word == right else shlex.quote(word) for word in words)))


def _reader_left() -> int:
    """``| head`` has read enough: redirect stdout, else the interpreter complains at its exit."""
    if sys.__stdout__ is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
    return 0


# Ending a command that runs in threads: the first signal asks it to stop, the second ends it.


@contextmanager
def stopping(stopped: threading.Event) -> Iterator[None]:
    """Within the block, SIGINT and SIGTERM set ``stopped``; a second one raises ``KeyboardInterrupt``."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        if stopped.is_set():  # do not wait for the running request
            raise KeyboardInterrupt
        stopped.set()

    former = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
