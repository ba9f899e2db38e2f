"""Pure rules of the palace: noise, chunks, classification and places of texts, and the rendering of layers."""
