"""The engine model with every step taken: what the simulation's shorter reckoning is held against."""

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf

from proxy.lab.engine import Engine, Sequence
from proxy.lab.simulation.arrivals import Offer


def stepped(
    engine: Engine, offers: SequenceOf[Offer], at_step: Callable[[float], object] = lambda _: None
) -> list[float]:
    """Seconds of each request whose client stays to the end, as they end. `at_step` gets the time before each step."""
    now_s, came, took_s = 0.0, 0, []
    had = [0] * len(offers)
    while came < len(offers) or engine.busy:
        if not engine.busy:
            now_s = max(now_s, offers[came].at_s)
        while came < len(offers) and offers[came].at_s <= now_s:
            engine.submit(Sequence(came, offers[came].prompt_tokens, offers[came].tokens, offers[came].tokens))
            came += 1
        at_step(now_s)
        step = engine.step()
        now_s += step.duration_s
        for number, tokens, finished in step.emitted:
            offer, had[number] = offers[number], had[number] + tokens
            if offer.read < 1.0 and had[number] >= offer.read * offer.tokens:
                engine.abort(number)
            elif finished:
                took_s.append(now_s - offer.at_s)
    return took_s
