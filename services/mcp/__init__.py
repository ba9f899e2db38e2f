"""The operations as tools of the Model Context Protocol: a shell like HTTP, and a loop over the toolsets."""
