"""What reactors have in common: a durable shared by processes, pauses, leases, facts published once, sweeps."""
