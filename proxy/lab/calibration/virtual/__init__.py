"""Measures one cell on the engine model, under a virtual clock. Engines over HTTP are in stand/."""
