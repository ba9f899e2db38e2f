"""The operations as tools of the Model Context Protocol: a loop over the toolsets, beside HTTP and the command line."""
