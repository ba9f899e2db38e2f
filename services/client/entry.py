"""The entry point of ``crew-journal-client``.

Invariant: nothing that a file in the caller's folder or ``PYTHONPATH`` could replace is imported before ``script`` has
forgotten these places.
"""

from .isolation import isolate


def script() -> int:
    """Run the command as a process of its own: no module of the caller's folder is imported."""
    isolate()
    from .command import main

    return main()
