"""What crews learn: rules, proposals, lessons."""
