"""Replay: traffic that really came, put through the simulation with the operator's own measured speeds."""
