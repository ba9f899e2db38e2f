"""What counts: retractions, restorations, live priorities."""
