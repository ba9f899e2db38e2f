"""The fields of a request as the options of the command that sends it.

Why: the service names what HTTP calls it (``agent_id``), and who typed ``--agent`` would look for that in vain.
Invariant: an option is named only where the command has it (a test compares); what an error says otherwise stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def as_options(options: Mapping[str, str]) -> Iterator[None]:
    """Let errors about a field name its option instead.

    Args:
        options: Field → option or argument of the command.
    """
    from ...schemas.errors import CrewJournalError

    try:
        yield
    except CrewJournalError as error:
        if error.field in options:
            named = {name for name in options if name == error.field or "_" in name}  # no other is a word of its own
            error.message = _renamed(error.message, named, options)
            error.hint = _renamed(error.hint, named, options)
        raise


def _renamed(text: str, names: set[str], options: Mapping[str, str]) -> str:
    pattern = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    return re.sub(rf"(?<![\w-])({pattern})(?![\w-])", lambda found: options[found[1]], text)
