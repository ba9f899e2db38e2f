"""Benchmarks of the main path, each with a raw-library baseline of the same run; see README.md.

Process control is the tests' own (``tests/support``), so that a stack that is measured is the stack that is tested.
"""

from __future__ import annotations

import sys
from pathlib import Path

_TESTS = str(Path(__file__).resolve().parents[1] / "tests")
if _TESTS not in sys.path:
    sys.path.append(_TESTS)
