"""What every test shares: hypothesis without a wall clock."""

from hypothesis import HealthCheck, settings

# Machines are shared and noisy: an example's time says nothing about the code.
settings.register_profile("crossover", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("crossover")
