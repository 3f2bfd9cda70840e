"""What is asked of an engine about itself, and when."""

import asyncio

import orjson
from fakes.control import FakeControl, Said
from fakes.desk import Clock, desk
from fakes.until import until

from proxy.model import EngineLoad, Role
from proxy.protocol.routes import EngineKind
from proxy.state.backend import Backend
from proxy.wire.engine_poll import FACTS_EVERY_S, EnginePoll


def loads(running: int = 2, limit: int = 64) -> Said:
    one = {"timestamp": 1.0, "num_running_reqs": running, "num_waiting_reqs": 1, "max_running_requests": limit}
    return Said(body=orjson.dumps({"loads": [one], "version": "0.5.23"}))


def server_info(version: str = "0.5.23") -> Said:
    facts = {"served_model_name": "m", "version": version, "max_running_requests": 64, "internal_states": []}
    return Said(body=orjson.dumps(facts))


class Rig:
    def __init__(self, engine: EngineKind = EngineKind.SGLANG) -> None:
        self.clock = Clock()
        self.desk = desk(self.clock)
        self.backend = self.desk.backend(Role.SPECULATIVE)
        self.control = FakeControl()
        self.told: list[str | None] = []
        self.poll = EnginePoll(
            self.desk, self.backend, self.control, engine, interval_s=0.001, timeout_s=5, on_facts=self._note
        )

    def _note(self, backend: Backend) -> None:
        self.told.append(backend.facts.version if backend.facts is not None else None)

    def answers(self, load: Said | None = None, facts: Said | None = None) -> None:
        """What the engine says from now on; None: it is not there."""
        pages = {"/v1/loads": load, "/server_info": facts}
        self.control.pages = {path: page for path, page in pages.items() if page is not None}

    async def polls(self, count: int = 1) -> None:
        for _ in range(count):
            await self.poll.poll()
            self.clock.now_s += 1


async def test_load_reaches_the_desk() -> None:
    rig = Rig()
    rig.answers(loads(running=7), server_info())
    await rig.polls()
    assert rig.backend.load is not None and (rig.backend.load.running, rig.backend.load.waiting) == (7, 1)


async def test_limit_of_the_engine_is_the_limit_in_force() -> None:
    rig = Rig()
    rig.answers(loads(limit=48), server_info())
    await rig.polls()
    assert rig.backend.max_in_flight == 48


async def test_facts_are_read_once_while_the_engine_answers() -> None:
    rig = Rig()
    rig.answers(loads(), server_info())
    await rig.polls(60)
    assert rig.control.asked.count("/server_info") == 1


async def test_facts_are_told_once_while_they_stay_the_same() -> None:
    rig = Rig()
    rig.answers(loads(), server_info())
    await rig.polls(30)
    rig.answers()
    await rig.polls(3)
    rig.answers(loads(), server_info())
    await rig.polls(3)
    assert rig.told == ["0.5.23"]


async def test_new_version_is_seen_when_the_engine_comes_back_soon() -> None:
    rig = Rig()
    rig.answers(loads(), server_info("0.5.18"))
    await rig.polls(2)
    rig.answers()
    await rig.polls(1)
    rig.answers(loads(), server_info("0.5.23"))
    await rig.polls(1)
    assert rig.told == ["0.5.18", "0.5.23"]


async def test_new_version_is_seen_when_the_engine_comes_back_late() -> None:
    rig = Rig()
    rig.answers(loads(), server_info("0.5.18"))
    await rig.polls(2)
    rig.answers()
    await rig.polls(25)
    rig.answers(loads(), server_info("0.5.23"))
    await rig.polls(1)
    assert rig.told == ["0.5.18", "0.5.23"]


async def test_facts_that_could_not_be_read_are_asked_for_again() -> None:
    rig = Rig()
    rig.answers(loads())
    await rig.polls(1)
    rig.answers(loads(), server_info())
    await rig.polls(int(FACTS_EVERY_S) + 1)
    assert rig.told == ["0.5.23"]


async def test_engine_without_facts_is_not_asked_at_every_poll() -> None:
    rig = Rig()
    rig.answers(loads())
    await rig.polls(30)
    assert rig.control.asked.count("/server_info") == 3


async def test_engine_without_loads_is_asked_for_its_facts_now_and_then() -> None:
    rig = Rig()
    rig.answers(None, server_info())
    await rig.polls(30)
    assert rig.control.asked.count("/server_info") == 3


async def test_engine_that_is_gone_keeps_its_last_load() -> None:
    rig = Rig()
    rig.answers(loads(running=7), server_info())
    await rig.polls()
    rig.answers()
    await rig.polls()
    assert rig.backend.load is not None and rig.backend.load.running == 7


async def test_unreadable_answers_change_nothing() -> None:
    rig = Rig()
    rig.answers(Said(body=b"<html>"), Said(body=b"\xff"))
    await rig.polls(2)
    assert (rig.backend.load, rig.backend.facts) == (None, None)


async def test_failing_pages_change_nothing() -> None:
    rig = Rig()
    rig.answers(Said(500, loads().body), Said(500, server_info().body))
    await rig.polls(2)
    assert (rig.backend.load, rig.backend.facts) == (None, None)


async def test_vllm_is_asked_on_its_own_pages() -> None:
    rig = Rig(EngineKind.VLLM)
    rig.control.pages = {"/v1/models": Said(body=b'{"data":[{"id":"m","max_model_len":4096}]}')}
    await rig.polls()
    assert set(rig.control.asked) == {"/metrics", "/v1/models"}


async def test_vllm_tells_its_model() -> None:
    rig = Rig(EngineKind.VLLM)
    rig.control.pages = {"/v1/models": Said(body=b'{"data":[{"id":"m","max_model_len":4096}]}')}
    await rig.polls()
    assert rig.backend.facts is not None and rig.backend.facts.model == "m"


PROPS = Said(body=b'{"total_slots":8,"model_alias":"m","build_info":"b7","default_generation_settings":{"n_ctx":2048}}')
METRICS = Said(body=b"llamacpp:requests_processing 8\nllamacpp:requests_deferred 3\n")
SLOTS = Said(body=b'[{"is_processing":true,"speculative":true},{"is_processing":false,"speculative":true}]')


async def test_llamacpp_tells_its_load_slots_and_drafting() -> None:
    rig = Rig(EngineKind.LLAMACPP)
    rig.control.pages = {"/props": PROPS, "/metrics": METRICS, "/slots": SLOTS}
    await rig.polls()
    assert rig.backend.load == EngineLoad(running=8, waiting=3)
    facts = rig.backend.facts
    assert facts is not None
    assert (facts.model, facts.context_length, facts.speculative_algorithm) == ("m", 2048, "unnamed")
    assert rig.backend.max_in_flight == 8


async def test_llamacpp_without_metrics_is_asked_for_its_slots() -> None:
    rig = Rig(EngineKind.LLAMACPP)
    rig.control.pages = {"/props": PROPS, "/metrics": Said(501), "/slots": SLOTS}
    await rig.polls()
    assert rig.backend.load == EngineLoad(running=1, waiting=0, max_running_requests=2)


async def test_a_server_of_unknown_kind_is_asked_for_its_models_alone() -> None:
    rig = Rig(EngineKind.OPENAI)
    rig.control.pages = {"/v1/models": Said(body=b'{"data":[{"id":"m"}]}'), "/metrics": METRICS}
    await rig.polls(3)
    assert set(rig.control.asked) == {"/v1/models"}
    assert (rig.backend.load, rig.backend.max_in_flight) == (None, None)


async def test_a_poll_that_breaks_is_told_once_and_the_next_is_made() -> None:
    rig, told = Rig(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    rig.answers(loads(running=7), server_info())
    observe, calls = rig.desk.observe_load, []

    def breaks(backend: Backend, load: EngineLoad) -> None:
        calls.append(load)
        if len(calls) < 4:
            raise ArithmeticError("what nobody thought of")
        observe(backend, load)

    rig.desk.observe_load = breaks  # type: ignore[method-assign]
    task = asyncio.get_running_loop().create_task(rig.poll.run())
    await until(lambda: len(calls) >= 5, what="a poll after those that broke")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert rig.backend.load is not None
    assert [str(each["exception"]) for each in told] == ["what nobody thought of"]
