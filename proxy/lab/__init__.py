"""The laboratory: measures and simulates. It uses the same rules as the doors and never the doors themselves."""
