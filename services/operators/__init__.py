"""Models of people: shown, corrected, forgotten, with their consent."""
