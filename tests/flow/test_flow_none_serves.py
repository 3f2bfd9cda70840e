"""What operators are told while no backend serves: nobody is said to take what another one does not."""

from fakes.freezing import freezing, seen_down
from fakes.leaping import leaping
from fakes.raw import ask, request
from fakes.stage import Stage

from proxy.model import Role

SPECULATIVE, BASELINE = Role


async def told(stage: Stage, *kinds: str) -> list[str]:
    """The sentences of the journal of these kinds, oldest first."""
    events = (await ask(stage.app.admin_port, request("/journal", method="GET"))).json["events"]
    assert isinstance(events, list)
    return [each["sentence"] for each in reversed(events) if each["kind"] in kinds]


@leaping
async def test_none_of_two_frozen_engines_is_said_to_get_the_requests_of_the_other_one() -> None:
    async with freezing() as (stage, one, other):
        one.moves.clear()
        other.moves.clear()
        await seen_down(stage, SPECULATIVE)
        await seen_down(stage, BASELINE)
        stage.app.watch.turn()
        [*_, first, second] = await told(stage, "health")
        assert "so requests go to" not in f"{first} {second}"
        assert "no backend serves, and requests are tried on both all the same." in second
        [eligible] = (await told(stage, "eligible"))[-1:]
        assert eligible == (
            "No backend serves: speculative does not answer its probes and baseline does not answer its probes. "
            "Requests are tried on both all the same."
        )
        one.moves.set()
        other.moves.set()


@leaping
async def test_one_that_goes_down_beside_one_that_serves_is_told_with_the_other_ones_name() -> None:
    async with freezing() as (stage, frozen, _):
        frozen.moves.clear()
        await seen_down(stage, SPECULATIVE)
        [*_, down] = await told(stage, "health")
        assert down == "Speculative is down: it does not answer, so requests go to baseline."
        stage.app.watch.turn()
        assert (await told(stage, "eligible"))[-1] == "Speculative takes no requests: it does not answer its probes."
        stage.app.drain_backend(BASELINE, draining=True)
        assert (await told(stage, "drain"))[-1].endswith(
            "speculative does not answer its probes: no backend serves, and requests are tried on both all the same."
        )
        frozen.moves.set()
