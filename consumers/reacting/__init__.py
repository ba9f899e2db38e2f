"""Shared by reactors: durables, pauses, leases, facts that are published once, sweeps."""
