"""What crews have learned: consolidations, rules, proposals, lessons, skills."""
