"""Crossover: one OpenAI-compatible endpoint in front of a speculative and a baseline instance of one model."""

__version__ = "0.1.0"
