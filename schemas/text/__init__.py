"""Text: terms, languages, dates, credentials, injected instructions."""
