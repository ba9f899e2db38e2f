"""Evaluation of recall: measures, agreement of rankings and intervals, as pure functions of ranked ids."""
