"""The evidence of a hit and of an answer: figures, calibrated confidence, plain reasons."""
