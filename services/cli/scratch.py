"""A journal of its own for one measurement: the whole service below a temporary folder, gone when it is over.

Invariant: a set of entries goes through the same import, service and recall as any journal; nothing is read around them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import exam_set
from .options import Where

if TYPE_CHECKING:
    from .connection import Target


@contextmanager
def scratch_journal(**embedder: Any) -> Iterator[Target]:
    """A running journal without entries.

    Args:
        embedder: Settings of its model.
    """
    from ...schemas.settings import Settings
    from .connection import ANY_PORT, Target
    from .local import LocalRuntime

    with tempfile.TemporaryDirectory(prefix="crew-journal-eval-") as folder:
        data_dir = Path(folder)
        settings = Settings(
            data_dir=data_dir, http=ANY_PORT, durability="interval", log_level="error", nats=None, **embedder
        )
        with LocalRuntime(settings) as runtime:
            yield Target(runtime.http_url, runtime.owner_token, data_dir, local=True)


def import_set(directory: Path, there: Target, workspace: str | None) -> int:
    """Import the entries of a set into a scratch journal; the last sequence.

    Args:
        directory: Holds ``exam_set.ENTRIES_FILE``.
        there: The scratch journal.
        workspace: Put every entry there instead of where it says.
    """
    from .importing.command import ImportOptions, import_file

    assert there.data_dir is not None
    options = ImportOptions(workspace=workspace)
    return import_file(str(directory / exam_set.ENTRIES_FILE), there, Where(there.data_dir), options).after.last_seq
