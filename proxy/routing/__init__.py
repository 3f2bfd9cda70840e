"""Deciding where a request goes, and judging the backends: values in, values out. No clock, no count is kept here."""
