"""Failure cases from the field: each test names its case, H1 to H35, which docs/cases.md lists."""
