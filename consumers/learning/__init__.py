"""What crews learn: how rules are found, worded and folded."""
