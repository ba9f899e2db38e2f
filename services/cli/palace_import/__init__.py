"""``palace import``: a MemPalace store or a folder of notes into the palace."""
