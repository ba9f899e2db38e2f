"""Where the messages come from: the live feed and bulk replay, both as messages of JOURNAL in order."""
