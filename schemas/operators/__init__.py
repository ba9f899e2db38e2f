"""Models of the people whom agents work for, with their consent."""
