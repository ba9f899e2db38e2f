"""Names of the parts of the memory block: ``[NAME]`` to ``[END NAME]``.

Apart from the block itself, so that hooks, which remove the parts from what they capture, import nothing else.
"""

from typing import Final

INSTRUCTIONS: Final = "MEMORY INSTRUCTIONS"
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
)
