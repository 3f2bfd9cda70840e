"""What the engine models say of themselves, as the proxy reads it from real ones: facts at first, and loads.

Loads are always fresh here. A real engine's are some steps old, and cannot be told from the one before at every poll.
"""

from proxy.lab.simulation.sharing import Station
from proxy.model import SPECULATIVE, EngineFacts, EngineLoad, Role


def facts(station: Station, role: Role) -> EngineFacts:
    """What an engine says when it is first asked."""
    return EngineFacts(
        max_running_requests=station.bounds.max_running,
        speculative_algorithm="EAGLE" if role is SPECULATIVE else None,
        kv_tokens=station.bounds.kv_tokens,
    )


def load(station: Station, role: Role, now_s: float) -> EngineLoad:
    """What an engine says when it is polled. A prompt that is being filled counts neither as running nor as waiting."""
    told = None if station.moments is None else station.moments.told()
    return EngineLoad(
        running=len(station.running),
        waiting=len(station.waiting),
        at_s=now_s,
        max_running_requests=station.bounds.max_running,
        accept_length=told[5] / told[1] if told and told[1] and role is SPECULATIVE else None,
        moments=told,
    )
