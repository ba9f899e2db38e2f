"""Building blocks of all families: entries, ids, subjects, operations, tables, errors, settings, ports."""
