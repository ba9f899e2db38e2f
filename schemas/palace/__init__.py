"""The palace: drawers with texts filed verbatim, under wing and room."""
