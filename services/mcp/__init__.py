"""Serves the operations as tools of the Model Context Protocol, by a loop over the toolsets."""
