"""Names of the parts of the memory block: ``[NAME]`` to ``[END NAME]``.

They are in a module of their own, so that hooks, which remove these parts from captured turns, import nothing else.
"""

from typing import Final

INSTRUCTIONS: Final = "MEMORY INSTRUCTIONS"
REMEMBERED: Final = "REMEMBERED"
MARKERS: Final = (
    "AGENT MEMORY",
    "CREW SHARED MEMORY",
    "WORKSPACE MEMORY",
    "PINS",
    "PERSONA",
    "OPERATOR MODEL",
    "PEER CONTEXT",
    INSTRUCTIONS,
    "MEMORY NOTICE",
    REMEMBERED,
)
