"""What folds run in: messages decoded and admitted once, one transaction a batch, rebuild and verify with the same code."""
