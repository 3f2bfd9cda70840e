"""What a person sees of a running proxy in a terminal: `crossover status`, `crossover top`, `crossover explain`.

All of it is read from the operators' port (port.py); nothing here is in the proxy's process, and the proxy never loads
it. The sentences come from there as well (telling/).
"""
