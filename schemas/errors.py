"""The tree of errors; each class has an HTTP status and an exit code of the command line (DESIGN §10).

Invariant: each error names what is wrong, with the id or field, and says in ``hint`` what to do.
"""

from __future__ import annotations

from .errors_core import *  # noqa: F403
from .errors_memory import *  # noqa: F403
