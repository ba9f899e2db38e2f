"""Forked commands begin with everything imported that ``up`` imports."""

from support.forked import PRELOADED, imported


def test_a_forked_command_begins_with_every_module_imported_that_is_named() -> None:
    assert not set(PRELOADED) - imported()
