"""The operators' port shows what is, and does what it is told or says how to ask."""

import contextlib
import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from fakes.curves import NAME, context, measured, one_sided, write
from fakes.engine import FakeEngine
from fakes.proxy import running, settings
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.reloading import staged
from fakes.until import until

from proxy import logs, tasks
from proxy.admin import DRAIN_FORM, MENDS, NO_HTTP, PIN_FORM
from proxy.app import App
from proxy.config import InvalidConfig, Settings, from_mapping
from proxy.config.problems import Problem
from proxy.model import Role
from proxy.wire.reload import watch


@dataclass
class Desk:
    """An operator at a running proxy."""

    app: App
    session: aiohttp.ClientSession

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.session.get(f"http://127.0.0.1:{self.app.admin_port}{path}") as answer:
            body = await answer.read()
            return answer.status, orjson.loads(body) if answer.content_type == "application/json" else body.decode()

    async def post(self, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        where = f"http://127.0.0.1:{self.app.admin_port}{path}"
        async with self.session.post(where, data=data, headers=headers) as answer:
            return answer.status, await answer.json()

    async def chat(self) -> Said:
        return await ask(self.app.port, request(body=chat()))


@contextlib.asynccontextmanager
async def operated(**sections: Any) -> AsyncIterator[Desk]:
    async with (
        FakeEngine() as a,
        FakeEngine(role="baseline") as b,
        running(settings(a.url, b.url, **sections)) as app,
        aiohttp.ClientSession() as session,
    ):
        yield Desk(app, session)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with operated() as made:
        yield made


# ---------------------------------------------------------------- looking


async def test_the_index_names_every_path(desk: Desk) -> None:
    status, index = await desk.get("/")
    assert status == 200
    assert index["crossover"]
    await ask(desk.app.port, request("/v1/chat/completions", chat(), "x-request-id: ID"))
    for path in index["paths"]:
        if not path.startswith("POST "):
            async with desk.session.get(f"http://127.0.0.1:{desk.app.admin_port}{path}") as answer:
                assert answer.status == 200, path


async def test_metrics_are_prometheus_text(desk: Desk) -> None:
    async with desk.session.get(f"http://127.0.0.1:{desk.app.admin_port}/metrics") as answer:
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert b"crossover_build_info" in await answer.read()


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01", b"GET / HTTP/9.9", b"GET /a b c HTTP/1.1", b"GET / HTTP/1.1\r\nno colon"]
)
async def test_what_is_no_http_is_refused_in_json(desk: Desk, sent: bytes) -> None:
    async with RawClient(desk.app.admin_port) as client:
        await client.send(sent + b"\r\n\r\n")
        said = await client.answer()
        assert await client.rest() == b""
    assert (said.status, said.header("content-type")) == (400, "application/json")
    assert said.json == {"error": NO_HTTP}


async def test_health_answers_whatever_the_engines_do(desk: Desk) -> None:
    assert await desk.get("/health") == (200, {"status": "alive"})


async def test_status_tells_state_facts_and_the_reading(desk: Desk) -> None:
    await desk.chat()
    status, told = await desk.get("/status")
    assert status == 200
    assert told["phase"] == "serving"
    assert told["policy"] == "overflow"
    assert told["pinned"] is None
    assert told["engines"]["speculative"]["speculative_algorithm"] == "EAGLE3"
    assert [backend["role"] for backend in told["backends"]] == ["speculative", "baseline"]
    assert told["backends"][0]["in_flight"] == 0
    assert told["backends"][0]["circuit"] == "closed"
    assert told["leave_at"] == 9
    assert told["ready"] is True


async def test_decisions_come_newest_first_with_their_numbers(desk: Desk) -> None:
    for number in range(3):
        await ask(desk.app.port, request("/v1/chat/completions", chat(), f"x-request-id: r{number}"))
    status, told = await desk.get("/decisions")
    assert status == 200
    assert [one["request_id"] for one in told["decisions"]] == ["r2", "r1", "r0"]
    first = told["decisions"][0]
    assert first["role"] == "speculative"
    assert first["reason"] == "room"
    assert first["because"]["leave_at"] == 9
    assert first["at_s"] > 1.6e9, "unix seconds, which people can read"


@pytest.mark.parametrize(("limit", "count"), [("1", 1), ("2", 2), ("100", 3), ("1000", 3), ("01", 1)])
async def test_decisions_are_at_most_as_many_as_asked_for(desk: Desk, limit: str, count: int) -> None:
    for _ in range(3):
        await desk.chat()
    _, told = await desk.get(f"/decisions?limit={limit}")
    assert len(told["decisions"]) == count


@pytest.mark.parametrize("limit", ["many", "1.5", "", "9" * 5000, "0", "-1", "1_0", "%2B1", "%C2%B2", "1001", "%20"])
async def test_a_limit_that_is_no_number_from_one_to_a_thousand_is_refused_with_what_it_is(
    desk: Desk, limit: str
) -> None:
    assert await desk.get(f"/decisions?limit={limit}") == (400, {"error": "limit is a whole number, 1 to 1000"})


async def test_the_configuration_is_shown_without_its_secrets() -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        backends = {"speculative": {"url": a.url, "api_key": "sesame"}, "baseline": {"url": b.url}}
        async with operated(backends=backends) as desk:
            status, text = await desk.get("/config")
            _, told = await desk.get("/status")
    assert status == 200
    assert "leave_at: 9" in text
    assert "***" in text
    assert "sesame" not in text + str(told)


async def test_without_a_curves_file_there_is_no_verdict(desk: Desk) -> None:
    assert await desk.get("/curves") == (200, {"measured_at": None, "contexts": [], "learned": None})
    assert (await desk.get("/status"))[1]["verdict"] == []


async def test_measured_speeds_and_their_verdict_are_shown(tmp_path: Path) -> None:
    path = write(tmp_path, measured(contexts=[context(), one_sided("unknown", context_tokens=8192)]))
    async with operated(routing={"curves_file": str(path)}) as desk:
        status, told = await desk.get("/curves")
        assert status == 200
        assert [each["verdict"] for each in told["contexts"]] == ["crossover_at", "unknown"]
        assert told["contexts"][0]["speculative"][0]["tok_s"] == 250
        sentence = "Baseline overtakes at 6 sequences in flight (95 % interval 5 to 7)."
        assert told["contexts"][0]["sentence"] == sentence
        assert (await desk.get("/status"))[1]["verdict"][0] == f"at 1024 tokens of context: {sentence}"


async def test_a_decision_by_speeds_is_told_with_the_cost_of_each_choice(tmp_path: Path) -> None:
    path = write(tmp_path, measured(contexts=[one_sided("unknown")]))
    async with operated(routing={"curves_file": str(path)}) as desk:
        said = await desk.chat()
        (told,) = (await desk.get("/decisions"))[1]["decisions"]
    assert (said.header("x-crossover-backend"), said.header("x-crossover-reason")) == (told["role"], "cheaper")
    because = told["because"]
    assert because["policy"] == "marginal"
    cheaper = min(("speculative", "baseline"), key=lambda role: because[f"{role}_cost_s"])
    assert cheaper == told["role"]
    assert (because["extrapolated"], because["baseline_failures"]) == (True, 0)
    assert "costs" not in because


async def test_an_engine_newer_than_its_speeds_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, measured(engines={"speculative": "0.5.22", "baseline": "0.5.23"}))
    sections = {"routing": {"curves_file": str(path)}, "log": {"level": "warning"}}
    async with operated(**sections) as desk:
        for backend in desk.app.desk.backends:
            desk.app.acquaintance.met(backend)
        assert (await desk.post("/reload"))[0] == 200
    lines = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    (told,) = [line["message"] for line in lines if line["event"] == "curves_outdated"]
    assert "the speculative engine is version 0.5.23, and its speeds were measured with 0.5.22" in told


async def test_a_changed_curves_file_is_taken_over_by_a_reload(tmp_path: Path) -> None:
    write(tmp_path, measured())
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, staged(tmp_path / "crossover.yaml", a, b) as stage:
        stage.change(routing={"curves_file": NAME})
        assert (await stage.reload())[0] == 200
        assert stage.app.curves()["contexts"][0]["verdict"] == "crossover_at"
        write(tmp_path, measured(measured_at="2026-12-01T00:00:00Z", contexts=[one_sided("never_speculate")]))
        status, said = await stage.reload()
        assert (status, said["changes"]) == (
            200,
            [
                "curves: 2026-11-30T04:12:00Z -> 2026-12-01T00:00:00Z",
                f"routing.curves_file: {tmp_path / NAME} read anew",
            ],
        )
        assert stage.app.curves()["contexts"][0]["verdict"] == "never_speculate"
        write(tmp_path, measured(version=2))
        assert (await stage.reload())[0] == 422
        assert stage.app.curves()["measured_at"] == "2026-12-01T00:00:00Z"


async def test_a_changed_curves_file_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, measured())
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, staged(tmp_path / "crossover.yaml", a, b) as stage:
        stage.change(routing={"curves_file": NAME})
        assert (await stage.reload())[0] == 200
        watcher = tasks.spawn(
            watch(lambda: stage.app.files, stage.app.disk, stage.app.reload, every_s=0.02), name="watch"
        )
        write(tmp_path, measured(measured_at="2026-12-01T00:00:00Z", model="another"))
        await until(lambda: stage.app.curves()["measured_at"] == "2026-12-01T00:00:00Z")
        await tasks.end(watcher)


# ---------------------------------------------------------------- pinning


async def test_a_pin_sends_everything_to_one_role_until_it_is_taken_back(desk: Desk) -> None:
    assert await desk.post("/pin", {"role": "baseline"}) == (200, {"pinned": "baseline"})
    said = await desk.chat()
    assert (said.header("x-crossover-backend"), said.header("x-crossover-reason")) == ("baseline", "operator_pin")
    assert (await desk.get("/status"))[1]["pinned"] == "baseline"
    assert await desk.post("/pin", {"role": None}) == (200, {"pinned": None})
    assert (await desk.chat()).header("x-crossover-backend") == "speculative"


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"null", b'"baseline"', b"{}", b'{"rol":"baseline"}', b'{"role":"fast"}', b'{"role":5}'),
        *(b'{"role":["baseline"]}', b'{"role":"baseline","more":1}', b"\xff\xfe", b"[" * 10_000),
    ],
)
async def test_a_pin_that_cannot_be_read_changes_nothing_and_tells_the_form(desk: Desk, body: bytes) -> None:
    assert await desk.post("/pin", body) == (400, {"error": PIN_FORM})
    assert desk.app.desk.rules.operator_pin is None


# ---------------------------------------------------------------- draining


async def test_a_drained_backend_gets_nothing_new_until_it_is_taken_back(desk: Desk) -> None:
    assert await desk.post("/drain", {"role": "speculative"}) == (200, {"role": "speculative", "draining": True})
    said = await desk.chat()
    assert (said.header("x-crossover-backend"), said.header("x-crossover-reason")) == ("baseline", "only_eligible")
    assert (await desk.get("/status"))[1]["backends"][0]["draining"] is True
    back = {"role": "speculative", "draining": False}
    assert await desk.post("/drain", back) == (200, back)
    assert (await desk.chat()).header("x-crossover-backend") == "speculative"


async def test_with_both_drained_it_serves_and_says_that_it_is_not_ready(desk: Desk) -> None:
    for role in Role:
        await desk.post("/drain", {"role": role.value})
    said = await desk.chat()
    assert (said.status, said.header("x-crossover-reason")) == (200, "all_down")
    assert (await ask(desk.app.port, request("/ready", method="GET"))).status == 503


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{}", b"[1]", b'{"role":null}', b'{"role":"baseline","draining":"no"}', b'{"draining":true}'),
        *(b'{"role":"baseline","draining":0}', b'{"role":"baseline","drain":true}'),
    ],
)
async def test_a_drain_that_cannot_be_read_changes_nothing_and_tells_the_form(desk: Desk, body: bytes) -> None:
    assert await desk.post("/drain", body) == (400, {"error": DRAIN_FORM})
    assert not any(backend.draining for backend in desk.app.desk.backends)


# ---------------------------------------------------------------- reloading


async def test_a_reload_tells_what_changed(desk: Desk) -> None:
    changed = settings(*(backend.url for backend in desk.app.desk.backends), routing={"leave_at": 20})
    desk.app._source = lambda: changed
    assert await desk.post("/reload") == (200, {"reloaded": True, "changes": ["routing.leave_at: 9 -> 20"]})
    assert (await desk.get("/status"))[1]["leave_at"] == 20


async def test_a_reload_of_a_wrong_configuration_changes_nothing_and_tells_why(desk: Desk) -> None:
    def wrong() -> Settings:
        raise InvalidConfig([Problem("crossover.yaml", 3, 1, "routing", "it is wrong; mend it")])

    desk.app._source = wrong
    status, told = await desk.post("/reload")
    assert status == 422
    assert told["reloaded"] is False
    assert "it is wrong; mend it" in told["problems"][0]
    seen = (await desk.get("/status"))[1]
    assert seen["reload_failed"] is True
    [trouble] = [each for each in seen["troubles"] if each["code"] == "reload_refused"]
    assert trouble["message"] == (
        "the changed configuration was refused, and the one before holds: crossover.yaml:3:1: routing: it is wrong; "
        "mend it. Mend the file: once it is right it is taken over by itself."
    )
    assert trouble["severe"] is False
    assert (await desk.chat()).status == 200
    desk.app._source = lambda: desk.app.settings
    assert (await desk.post("/reload"))[0] == 200
    assert (await desk.get("/status"))[1]["troubles"] == []


async def test_a_reload_that_needs_a_restart_is_refused_with_the_key(desk: Desk) -> None:
    urls = {backend.role.value: {"url": backend.url} for backend in desk.app.desk.backends}
    desk.app._source = lambda: from_mapping({"backends": urls, "listen": {"port": 1234}})
    status, told = await desk.post("/reload")
    assert status == 422
    assert any("listen.port" in problem for problem in told["problems"])


async def test_a_defect_is_answered_and_logged_by_type_and_place(capfdbinary: Any, desk: Desk) -> None:
    def fail() -> Settings:
        raise RuntimeError("words that nobody should read")

    desk.app._source, desk.app.logger = fail, logs.configure("json", "error")
    status, told = await desk.post("/reload")
    out = capfdbinary.readouterr().out
    line = orjson.loads(out)
    assert status == 500
    assert (line["event"], line["path"], line["error"]) == ("admin_failed", "/reload", "RuntimeError")
    assert "words" not in str(told) + out.decode()


# ---------------------------------------------------------------- who may ask


@pytest.mark.parametrize("path", ["/reload", "/pin", "/drain"])
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://["])
async def test_another_site_cannot_steer_the_proxy_through_an_operators_browser(
    desk: Desk, path: str, origin: str
) -> None:
    status, told = await desk.post(path, {"role": "baseline"}, Origin=origin)
    assert status == 403
    assert "other sites" in told["error"]
    assert desk.app.desk.rules.operator_pin is None


async def test_a_page_of_this_port_may_steer(desk: Desk) -> None:
    own = f"http://127.0.0.1:{desk.app.admin_port}"
    assert (await desk.post("/pin", {"role": "baseline"}, Origin=own))[0] == 200


@pytest.mark.parametrize("path", ["/reload", "/pin", "/drain"])
async def test_nothing_is_done_by_looking(desk: Desk, path: str) -> None:
    assert (await desk.get(path))[0] == 405


async def test_what_is_not_served_is_told_in_the_form_of_every_error(desk: Desk) -> None:
    assert await desk.get("/nothing") == (404, {"error": MENDS[404]})
    assert await desk.get("/pin") == (405, {"error": MENDS[405]})
    where = f"http://127.0.0.1:{desk.app.admin_port}/pin"
    async with desk.session.get(where) as answer:
        assert answer.headers["allow"] == "POST"
    async with desk.session.post(where, data=io.BytesIO(bytes(2 << 20))) as answer:
        assert (answer.status, await answer.json()) == (413, {"error": MENDS[413]})


async def test_both_ports_are_described(desk: Desk) -> None:
    status, own = await desk.get("/openapi.json")
    assert (status, own["openapi"]) == (200, "3.1.0")
    assert "/openapi.json" in own["paths"]
    status, clients = await desk.get("/openapi/clients.json")
    assert (status, clients["openapi"]) == (200, "3.1.0")
    assert "/v1/chat/completions" in clients["paths"]


async def test_the_clients_port_has_none_of_it(desk: Desk) -> None:
    for path in ("/pin", "/drain", "/reload", "/status", "/decisions", "/config"):
        assert (await ask(desk.app.port, request(path, b"{}"))).status == 404
    await until(lambda: not desk.app.relay.trips)
