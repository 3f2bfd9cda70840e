"""Traffic to replay that nobody recorded, and the ground that it is replayed on."""

from random import Random

from proxy.lab.curves import find
from proxy.lab.replay.candidates import Ground, bare_settings, with_limits
from proxy.lab.replay.engines import Speeds, engines_of
from proxy.lab.replay.traffic import Came, Traffic, Was
from proxy.model import Placement, Role, Traits

KIMI = Speeds("kimi", curve=find("rtx6kpro_kimi26_v1_dcp1_ctx0"))
CHAT = "/v1/chat/completions"


def came(at_s: float, tokens: int = 100, prompt: int = 400, weight: int = 1, went: Role | None = None) -> Came:
    was = None if went is None else Was(went, 1.0, None, None)
    return Came(
        at_s, prompt, prompt, tokens, float(tokens), CHAT, Traits(weight, True, prompt_bytes=4 * prompt), was=was
    )


def random_traffic(count: int, rate_per_s: float, seed: int = 1) -> Traffic:
    rng, at_s, rows = Random(seed), 0.0, []
    for _ in range(count):
        at_s += rng.expovariate(rate_per_s)
        rows.append(came(at_s, max(1, round(rng.expovariate(1 / 128)))))
    return Traffic(tuple(rows))


def ground(traffic: Traffic, placement: Placement = Placement.SEPARATE, limit: int = 64) -> Ground:
    engines = engines_of(KIMI, traffic, placement, None, max_in_flight=limit)
    return Ground(with_limits(bare_settings(placement), engines.limits), engines)
