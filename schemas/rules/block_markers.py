"""Names of the parts of every text that the assembler makes for a prompt: ``[NAME]`` to ``[END NAME]``.

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
"""Of the memory block."""
CONTEXT_MARKERS: Final = ("WORKING MEMORY", "SEMANTIC MEMORY", "EPISODIC MEMORY", "PROCEDURAL MEMORY")
"""Of the context of layered memory, one for each kind of memory."""
IDENTITY, STORY, DRAWERS = PALACE_MARKERS = ("PALACE IDENTITY", "PALACE MEMORY", "PALACE DRAWERS")
"""Of the palace: the identity, the essential story, and drawers of a place or a search."""
EVERY_MARKER: Final = (*MARKERS, *CONTEXT_MARKERS, *PALACE_MARKERS)
"""No text of a memory may contain one of them, whichever profile it is shown by."""
