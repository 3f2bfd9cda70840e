"""What of requests is told: a share of those that went well, all of the others, and no more of clients than is set."""

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import orjson
import pytest
from fakes.engine import Exchange
from fakes.keys import bearer, write_keys
from fakes.raw import ask, chat, request
from fakes.stage import staged
from fakes.until import until
from hypothesis import given
from hypothesis import strategies as st
from test_logs_requests import FULL, output

from proxy import logs
from proxy.logs.keep import Keep
from proxy.model import Outcome, RequestFacts

Style = Literal["json", "text"]
WELL = FULL._replace(failure=None, first_failure=None, attempts=1)
IDS = [f"{number:032x}" for number in range(4000)]


def told(written: Callable[[], bytes]) -> list[dict[str, Any]]:
    with contextlib.suppress(BlockingIOError):  # nothing was written
        return [orjson.loads(line) for line in written().splitlines()]
    return []


# ---------------------------------------------------------------- a share of them


@given(st.text(), st.floats(0, 1), st.floats(0, 1))
def test_a_line_that_a_small_share_keeps_a_larger_one_keeps_too(request_id: str, one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert Keep(large).writes(request_id) or not Keep(small).writes(request_id)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_of_many_requests_about_the_share_is_kept(share: float) -> None:
    kept = sum(Keep(share).writes(each) for each in IDS)
    # Five standard deviations of a fair draw, at most.
    assert abs(kept - share * len(IDS)) <= 5 * (len(IDS) * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("style", ["json", "text"])
def test_what_is_written_follows_from_the_id_alone(style: Style) -> None:
    with output() as written:
        log = logs.configure(style, "info", sample=0.5)
        for request_id in (one for one in IDS[:40] for _ in range(2)):
            logs.request_settled(log, WELL._replace(request_id=request_id))
        said = written().decode()
    kept = [one for one in IDS[:40] if Keep(0.5).writes(one)]
    assert 0 < len(kept) < 40
    assert [said.count(one) for one in IDS[:40]] == [2 * (one in kept) for one in IDS[:40]]


def test_a_line_says_of_how_many_it_is_one() -> None:
    dull = next(one for one in IDS if Keep(0.25).writes(one))
    with output() as written:
        log = logs.configure("json", "info", sample=0.25)
        logs.request_settled(log, WELL._replace(request_id=dull))
        logs.request_settled(log, FULL)
        sampled, whole = told(written)
    assert sampled["sample"] == 0.25
    assert "sample" not in whole, "it is there whatever the share"


@pytest.mark.parametrize(
    "facts",
    [
        WELL._replace(outcome=Outcome.FAILED_AFTER_COMMIT, failure="stream_cut"),
        WELL._replace(outcome=Outcome.FAILED_BEFORE_COMMIT, status=502, failure="backend_broken"),
        WELL._replace(outcome=Outcome.CLIENT_GONE_IN_STREAM),
        WELL._replace(outcome=Outcome.CLIENT_GONE_WAITING, status=499),
        WELL._replace(outcome=Outcome.SHUT_DOWN),
        WELL._replace(status=400),
        WELL._replace(attempts=2, first_failure="backend_broken"),
    ],
    ids=lambda facts: f"{facts.outcome}-{facts.status}-{facts.attempts}",
)
def test_what_did_not_go_well_is_always_told(facts: RequestFacts) -> None:
    with output() as written:
        logs.request_settled(logs.configure("json", "info", sample=0.0), facts)
        assert len(told(written)) == 1


def test_what_went_well_is_not_told_where_none_of_it_is_asked_for() -> None:
    with output() as written:
        logs.request_settled(logs.configure("json", "info", sample=0.0), WELL)
        assert told(written) == []


async def test_questions_are_sampled_with_requests_and_refusals_are_not(capfdbinary: Any) -> None:
    async with staged() as stage:
        logs.configure("json", "info", sample=0.5)
        for number in range(30):
            name = f"x-request-id: id-{number}"
            await ask(stage.app.port, request("/v1/models", b"", name, method="GET"))
            await ask(stage.app.port, request("/v1/chat/completions", chat(), name))
            await ask(stage.app.port, request("/no/such/route", b"", name, method="GET"))
        await until(lambda: len(stage.ended) == 30)
        logs.configure("json", "error")
    lines = [orjson.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    by_event: dict[str, set[str]] = {}
    for line in lines:
        by_event.setdefault(line["event"], set()).add(line.get("request_id", ""))
    kept = {f"id-{number}" for number in range(30) if Keep(0.5).writes(f"id-{number}")}
    assert by_event["request_settled"] == by_event["question_answered"] == kept
    assert len(by_event["request_refused"]) == 30


# ---------------------------------------------------------------- what is left out


@pytest.mark.parametrize("style", ["json", "text"])
@pytest.mark.parametrize("redact", [["client"], ["client_name"], ["client", "client_name"]], ids="+".join)
async def test_what_is_redacted_stands_in_no_line_of_a_request(
    style: Style, redact: list[str], tmp_path: Any, capfdbinary: Any
) -> None:
    async def breaks(exchange: Exchange) -> None:
        exchange.reset()

    write_keys(tmp_path / "keys", ["some-team"])
    async with staged(breaks, listen={"api_keys_file": str(tmp_path / "keys")}) as stage:
        logs.configure(style, "info", redact=redact)
        for target in ("/v1/chat/completions", "/no/such/route"):
            for line in (bearer("some-team"), "x-other: 1"):
                await ask(stage.app.port, request(target, chat(), line))
        await ask(stage.app.port, request("/v1/models", b"", bearer("some-team"), method="GET"))
        await until(lambda: stage.ended)
        logs.configure("json", "error")
    out = capfdbinary.readouterr().out
    assert out.count(b"request_settled") == 1
    assert out.count(b"request_refused") == 3
    assert out.count(b"question_answered") == 1
    for name, shown in {"client": b"127.0.0.1", "client_name": b"some-team"}.items():
        assert (shown in out) == (name not in redact), name


async def test_a_reload_changes_what_is_told(tmp_path: Any, capfdbinary: Any) -> None:
    async with staged(log={"level": "info"}) as stage:
        values = stage.app.settings.model_dump(mode="json")
        values["log"] = {"format": "json", "level": "info", "redact": ["client"]}
        stage.app._source = lambda: type(stage.app.settings).model_validate(values)
        assert (await stage.app.reload())[0]
        await ask(stage.app.port, request("/v1/chat/completions", chat()))
        await until(lambda: stage.ended)
        logs.configure("json", "error")
    [line] = [each for each in map(orjson.loads, capfdbinary.readouterr().out.splitlines()) if "outcome" in each]
    assert "client" not in line
