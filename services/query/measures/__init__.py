"""How good recall is: measures, agreement of rankings and intervals, as pure functions of ranked ids."""
