"""What operators do: status, dead letters, rebuild, verify, backup."""
