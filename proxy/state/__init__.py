"""The books: the only counts of what is in flight."""
