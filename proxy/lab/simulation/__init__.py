"""Simulation: the desk of the proxy in front of two engine models on a virtual clock, and the best that can be done."""
