"""What every family is made of: entries, ids, subjects, operations, tables, errors, settings, ports."""
