"""Code that reactors share: durables, pauses, leases, facts that are published once, sweeps."""
