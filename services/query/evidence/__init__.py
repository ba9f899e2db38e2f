"""What speaks for a hit and for an answer: figures, calibrated confidence, plain reasons."""
