"""From what was asked and what is configured to the ground that candidates stand on. Files are read in command.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.config import Settings
from proxy.lab.replay.candidates import Ground, bare_settings, in_force, same, with_curves, with_limits
from proxy.lab.replay.engines import Speeds, engines_of
from proxy.lab.replay.traffic import Traffic
from proxy.model import Placement, Role


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says, where None leaves it to the configuration, the curves and the traffic; and the
    sequences that the engines run at most, where the log says that."""

    placement: Placement
    context_tokens: float | None = None
    max_in_flight: int | None = None
    max_running: Mapping[Role, int] = field(default_factory=dict)


def placement_of(said: str | None, settings: Settings | None, speeds: Speeds) -> Placement:
    """Where the engines run: as asked, as configured, or as the calibration was told."""
    if said is not None:
        return Placement(said)
    if settings is not None:
        return settings.placement
    return Placement.SEPARATE if speeds.curves is None else speeds.curves.placement


def ground_of(
    traffic: Traffic, settings: Settings | None, speeds: Speeds, asked: Asked, curves_file: str | None
) -> Ground:
    """The ground. Without a configuration the present one is what the log says was in force, else policy auto with
    these curves. Raises `ConfigError` where the curves cannot serve."""
    engines = engines_of(
        speeds,
        traffic,
        asked.placement,
        settings,
        context_tokens=asked.context_tokens,
        max_in_flight=asked.max_in_flight,
        max_running=asked.max_running,
    )
    told, was = traffic.in_force, None
    if settings is None:
        bare = bare_settings(asked.placement)
        present = with_curves(bare, engines) if told is None else in_force(bare, told, traffic.sent_to, engines)
    else:
        present = settings.model_copy(update={"placement": asked.placement}).read_from(settings.sources)
        was = None if told is None else in_force(present, told, traffic.sent_to, engines)
    present = with_limits(present, engines.limits)
    was = None if was is None or same(was, present) else with_limits(was, engines.limits)
    return Ground(present, engines, was, curves_file)
