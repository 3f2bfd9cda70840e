"""Measures one cell over HTTP: load, what the engine tells, and the arithmetic of a window. Plans are in deciding/."""
