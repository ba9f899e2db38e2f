"""The entry point of ``crew-journal-client``.

Invariant: modules that a file in the caller's folder or ``PYTHONPATH`` could replace are imported only after ``script``
has removed these folders from the import path.
"""

from .isolation import isolate


def script() -> int:
    """Run the command; no module from the caller's folder is imported."""
    isolate()
    from .command import main

    return main()
