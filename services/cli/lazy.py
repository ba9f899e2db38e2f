"""The application as the command line uses it: help and completion from a generated index, and one import for one command.

Why: importing all commands takes .7 s of CPU time; a help text, a completion or an everyday command takes a fraction of it.
Invariant: the index holds what the commands themselves declare; a test compares the help texts of all of them.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from . import tree
from .commands import ValueCompletion, short_help
from .completion import journals, workspaces
from .run import COMPLETE_VARIABLE, UnknownCommand, imports, new_app, run

INDEX: Final = Path(__file__).with_name("index.json")
PACKAGE: Final = __package__.rpartition(".services.")[0]
_HELP: Final = frozenset({"-h", "--help"})


@dataclass
class CommandNode:
    """A group: what its help lists, and what it answers to besides.

    Attributes:
        help: Its help text.
        commands: Name → a group, or the name under which the index has a command.
        silent: Further names of this kind, which no help lists.
        guesses: Names that people try → names of this group.
    """

    help: str
    commands: dict[str, CommandNode | str] = field(default_factory=dict)
    silent: dict[str, CommandNode | str] = field(default_factory=dict)
    guesses: Callable[[str], Iterable[str]] = lambda name: tree.GUESSES_IN_GROUPS.get(name, ())

    def find(self, name: str) -> tuple[str, CommandNode | str] | None:
        """A command of this group by any of its names, with the name that it has."""
        for candidate in (name, *self.guesses(name)):
            target = self.commands.get(candidate) or self.silent.get(candidate)
            if target is not None:
                return candidate, target
        return None


@cache
def index() -> dict[str, Any]:
    """The generated index: ``groups`` with their help, ``commands`` with module, help text and parameters."""
    loaded: dict[str, Any] = json.loads(INDEX.read_bytes())
    return loaded


def _all_of(group: str) -> dict[str, CommandNode | str]:
    """The commands that the index has below a group."""
    start = f"{group} "
    return {path[len(start) :]: path for path in index()["commands"] if path.startswith(start)}


def _target(source: str) -> CommandNode | str:
    groups = index()["groups"]
    return CommandNode(groups[source], _all_of(source)) if source in groups else source


@cache
def root() -> CommandNode:
    """All commands: the everyday ones, the groups, and silently every other name that a command has or had."""
    top = CommandNode(
        "", {name: name for name in tree.EVERYDAY}, guesses=lambda name: filter(None, (tree.GUESSES.get(name),))
    )
    for name, (text, sources) in tree.GROUPS.items():
        node = top.commands[name] = CommandNode(text)
        for own, source in sources.items():
            if own:
                node.commands[own] = _target(source)
            else:
                node.commands |= _all_of(source)
    for name, sources in tree.FORMER_GROUPS.items():
        top.silent[name] = CommandNode("", {own: _target(source) for own, source in sources.items() if own})
        for own, source in sources.items():
            if not own:
                top.silent[name] = top.commands[source]
    for path in (*index()["commands"], *index()["groups"]):
        first = path.partition(" ")[0]
        if first not in top.commands:
            top.silent.setdefault(first, _target(first))
    return top


class LazyGroup(click.Group):
    """A group of the tree.

    Args:
        node: The group.
        still: Whether its commands are only described (help, completion), not run.
    """

    def __init__(self, name: str | None, node: CommandNode, *, still: bool, **settings: Any) -> None:
        super().__init__(name, help=node.help, short_help=node.help.rstrip("."), **settings)
        self._node = node
        self._still = still

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names that the help lists."""
        return list(self._node.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by any of its names."""
        found = self._node.find(cmd_name)
        if found is None:
            return None
        name, target = found
        if isinstance(target, CommandNode):
            return LazyGroup(name, target, still=self._still)
        record = index()["commands"][target]
        return described(name, record) if self._still else loaded(name, record)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first argument; a name that is not known is answered with the nearest one."""
        name = args[0]
        if name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        raise UnknownCommand(name, self.nearest(name), args[1:], ctx)

    def nearest(self, name: str) -> list[str]:
        """The commands whose names are like this one, with their groups; the first one is the best."""
        names = {own: own for own in (*self._node.commands, *self._node.silent)}
        if self._node is root():
            names |= tree.GUESSES
            for group, (_, sources) in tree.GROUPS.items():
                names |= {own: f"{group} {own}" for own in sources if own and own not in names}
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.65)
        return list(dict.fromkeys(names[each] for each in close))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands; at the top the everyday ones, then one line for each group."""
        if self._node is not root():
            self._write(formatter, "Commands", self._node.commands)
            return
        self._write(formatter, "Every day", {name: self._node.commands[name] for name in tree.EVERYDAY})
        self._write(formatter, "Groups", {name: self._node.commands[name] for name in tree.GROUPS})

    def _write(self, formatter: click.HelpFormatter, title: str, commands: Mapping[str, CommandNode | str]) -> None:
        rows = []
        for name, target in commands.items():
            text = target.help if isinstance(target, CommandNode) else index()["commands"][target]["help"]
            rows.append((name, short_help(text)))
        with formatter.section(title):
            formatter.write_dl(rows)


def start(argv: Sequence[str]) -> int:
    """Run a command; ``help COMMAND`` is ``COMMAND --help``. Returns the exit code."""
    arguments = [*argv[1:], "--help"] if argv[:1] == ["help"] else list(argv)
    return run(lazy_app(arguments), arguments)


def lazy_app(arguments: Sequence[str]) -> click.Group:
    """The application for these arguments."""
    still = not _HELP.isdisjoint(arguments) or COMPLETE_VARIABLE in os.environ
    plain = new_app()
    top = LazyGroup(plain.name, root(), still=still, params=plain.params, context_settings=plain.context_settings)
    top.help = plain.help
    top.epilog = plain.epilog
    return top


# A command: as it is (imported), and as it is described (from the index).


def loaded(name: str, record: Mapping[str, Any]) -> click.Command:
    """The command itself; its module is imported."""
    module, attribute = record["from"]
    if f"{PACKAGE}{module}" in sys.modules:
        found = getattr(sys.modules[f"{PACKAGE}{module}"], attribute)
    else:
        with imports():
            found = getattr(import_module(module, PACKAGE), attribute)
    if isinstance(found, click.Command):
        return found
    if callable(found):
        from .commands import Command

        return Command(name, callback=found)
    from .printers import command_of

    return command_of(found, name)


class _Described(click.Command):
    """A command of which only the parameters are known; it is loaded if it is run after all (``remember -- --help``)."""

    def __init__(self, name: str, record: Mapping[str, Any]) -> None:
        text = record["help"]
        shared = index()["parameters"]
        params = [_parameter(shared[each] if isinstance(each, str) else each) for each in record["params"]]
        super().__init__(name, help=text, short_help=short_help(text), params=params)
        self._record = record

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        before = args[: args.index("--")] if "--" in args else args
        if extra.get("resilient_parsing") or (parent and parent.resilient_parsing) or not _HELP.isdisjoint(before):
            return super().make_context(info_name, args, parent, **extra)
        return loaded(self.name or "", self._record).make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return ctx.command.invoke(ctx)


def described(name: str, record: Mapping[str, Any]) -> click.Command:
    """The command as the index describes it."""
    return _Described(name, record)


def _parameter(each: Mapping[str, Any]) -> click.Parameter:
    settings = {key: value for key, value in each.items() if key not in ("names", "argument", "type", "values")}
    settings["type"] = _type(each.get("type", "text"))
    if "values" in each:
        settings["shell_complete"] = ValueCompletion(_completer(each["values"]))
    if each.get("argument"):
        return click.Argument(each["names"], **settings)
    return click.Option(each["names"], **settings)


def _type(kind: Any) -> Any:
    if isinstance(kind, str):
        return {"text": str, "int": int, "float": float, "flag": bool}[kind]
    name, *ends = kind
    if name == "choice":
        return click.Choice(ends)
    if name == "path":
        exists, file_okay, dir_okay = ends
        return click.Path(exists=exists, file_okay=file_okay, dir_okay=dir_okay)
    return (click.IntRange if name == "int" else click.FloatRange)(*ends)


def _completer(values: Any) -> Callable[[str], list[str]]:
    if isinstance(values, str):
        return {"workspaces": workspaces, "journals": journals}[values]
    return lambda incomplete: [value for value in values if value.startswith(incomplete)]
