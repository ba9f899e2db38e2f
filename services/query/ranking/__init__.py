"""From candidates to an order: fusion, rules, and the recipe that understands conversation."""
