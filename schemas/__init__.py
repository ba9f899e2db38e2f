"""Models and pure rules that all other packages share."""
