"""What operators do: status, dead letters, rebuild and verify."""
