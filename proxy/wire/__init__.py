"""Sockets, probes, polls, file watch and the bounded queue: everything that waits on something outside."""
