"""The parts of the page tell one state: a frozen engine, a proxy that is gone, a file that was wrong and is mended."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fakes.browser import Browser, Tab
from fakes.curves import measured, write
from fakes.held import Held
from fakes.pages import audited, open_page, text
from fakes.raw import RawClient, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import Role
from proxy.routing.curves import SpeedCurve, SpeedPoint
from proxy.routing.health import Evidence
from proxy.watch.due import Due

pytestmark = pytest.mark.asyncio(loop_scope="module")


@contextlib.asynccontextmanager
async def shown(browser: Browser, **sections: Any) -> AsyncIterator[tuple[Stage, Tab]]:
    async with staged(**sections) as stage, browser.tab() as tab:
        await open_page(tab, stage.app)
        yield stage, tab


def card(role: Role) -> str:
    """What a backend's card says of it."""
    return f"document.querySelector('.card.{role} .state').textContent"


def turn(stage: Stage, times: int = 1) -> None:
    """So many seconds pass at once."""
    for _ in range(times):
        stage.app.watch.turn()


async def test_a_backend_that_gives_nothing_is_a_trouble_before_it_is_down(browser: Browser, tmp_path: Path) -> None:
    held = Held()
    curves = {"curves_file": str(write(tmp_path, measured()))}
    sections = {"routing": curves, "health": {"interval_s": 300}}
    async with staged(held, held, **sections) as stage, browser.tab() as tab, RawClient(stage.app.port) as client:
        await open_page(tab, stage.app)
        await client.send(request("/v1/chat/completions", chat()))
        await until(lambda: stage.in_flight == 1)
        [backend] = [each for each in stage.app.desk.backends if each.book.requests]
        stage.app.desk.observe_health(backend, Evidence.HIT)
        stage.app.desk.observe_health(backend, Evidence.MISS)
        turn(stage)
        name = backend.role.value.capitalize()
        await tab.until(f"{text('notice-lines')}.startsWith('✕ {name} ')")
        assert "1 request waits there" in await tab.run(text("notice-lines"))
        assert "1 request waits there" in await tab.run(text("last"))
        assert "1 request waits there" in await tab.run(text("story"))
        await tab.until(f"{card(backend.role)} === '✕ Gives no sign of life (silent)'")
        stage.app.desk.observe_health(backend, Evidence.TOKENS)
        turn(stage)
        await tab.until(f"{text('notice-lines')} === '✓ Nothing to warn of.'")
        assert f"{name} gives answers again." in await tab.run(text("last"))
        await tab.until(f"{card(backend.role)} === '✓ Takes requests (up)'")
        held.opened.set()
        await until(lambda: stage.in_flight == 0)


async def test_the_headline_tells_first_that_neither_backend_gives_a_sign_of_life(browser: Browser) -> None:
    async with shown(browser, health={"interval_s": 300}) as (stage, tab):
        for backend in stage.app.desk.backends:
            stage.app.desk.observe_health(backend, Evidence.HIT)
            stage.app.desk.listen(backend)
            stage.app.desk.unanswered(backend)
        turn(stage)
        await tab.until(f"{text('now')}.startsWith('Neither backend gives a sign of life')")
        for role in Role:
            assert await tab.run(card(role)) == "✕ Gives no sign of life (silent)"


async def test_no_side_of_the_crossover_is_told_while_no_backend_serves(browser: Browser, tmp_path: Path) -> None:
    curves = {"curves_file": str(write(tmp_path, measured()))}
    async with shown(browser, routing=curves, health={"interval_s": 300}) as (stage, tab):
        beside = text("verdict-more")
        with stage.app.desk.ledger.open(stage.app.desk.backend(Role.BASELINE).book, 30):
            turn(stage)
            await tab.until(f"{beside}.includes('30 are in flight now: above the crossover.')")
            for backend in stage.app.desk.backends:
                stage.app.desk.observe_health(backend, Evidence.HIT)
                stage.app.desk.listen(backend)
                stage.app.desk.unanswered(backend)
            turn(stage)
            await tab.until(f"{beside}.includes('30 are in flight now, and no backend serves')")
            for backend in stage.app.desk.backends:
                for _ in range(3):
                    stage.app.desk.observe_health(backend, Evidence.MISS)
            turn(stage)
            await tab.until(f"{text('now')}.startsWith('No backend serves')")
            assert "the crossover" not in (await tab.run(beside))
            backend = stage.app.desk.backend(Role.SPECULATIVE)
            stage.app.desk.spoke(backend)
            await until(lambda: stage.app.desk.observe_health(backend, Evidence.HIT) or backend.health.up)
            turn(stage)
            await tab.until(f"{beside}.includes('30 are in flight now: above the crossover.')")


async def test_a_configuration_that_was_refused_is_in_the_band_with_its_mend(browser: Browser) -> None:
    async with shown(browser) as (stage, tab):
        stage.app._reject(["crossover.yaml:3: it is wrong; mend: write it right"])
        turn(stage)
        await tab.until(f"{text('notice-lines')}.startsWith('! The changed configuration was refused')")
        said = await tab.run(text("notice-lines"))
        assert "crossover.yaml:3: it is wrong; mend: write it right" in said
        assert said.count("refused") == 1


async def test_what_was_noted_just_before_the_page_opened_is_told_once(browser: Browser) -> None:
    async with staged() as stage, browser.tab() as tab:
        turn(stage)
        stage.app.watch.note("caution", "Only once.")
        await open_page(tab, stage.app)
        stage.app.watch.note("caution", "And this.")
        turn(stage)
        await tab.until(f"{text('entries')}.includes('And this.')")
        assert (await tab.run(text("entries"))).count("Only once.") == 1


async def test_band_headline_and_last_change_turn_at_once(browser: Browser) -> None:
    async with shown(browser) as (stage, tab):
        turn(stage)
        await tab.run(
            f"""new MutationObserver(() => {{ globalThis.torn = globalThis.torn ?? [
                {text("now")}, {text("notice-lines")}, {text("last")}, {text("story")}];
            }}).observe(document.getElementById('now'), {{ subtree: true, childList: true, characterData: true }})"""
        )
        stage.app.drain_backend(Role.BASELINE, draining=True)
        turn(stage)
        await tab.until("globalThis.torn")
        assert all("drain" in part for part in await tab.run("globalThis.torn")), "before the next row comes"


async def test_what_came_of_the_load_is_no_change_of_what_steers_it(browser: Browser) -> None:
    async with shown(browser) as (stage, tab):
        stage.app.pin(Role.BASELINE)
        stage.app.watch.note("refusals", "Requests begin to be refused.")
        stage.app.watch.note("refusals_over", "No more requests are refused.")
        turn(stage)
        await tab.until(f"{text('story')}.includes('No more requests')")
        last = await tab.run(text("last"))
        assert last.startswith("Last change of regime, backends or settings, just now: An operator pinned"), last


async def test_the_age_of_the_regime_counts_on_between_two_states_and_is_that_of_its_change(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    ages = """[document.getElementById('now'), document.querySelector('#figures > :last-child'),
        document.getElementById('last')].map((part) => part.textContent.match(/(for|settings,) (\\d+ s)/)?.[2])"""
    async with shown(browser, routing={"policy": "threshold"}) as (stage, tab):
        desk, offset_s = stage.app.desk, stage.app.watch.offset_s()
        began_s = desk.clock()
        monkeypatch.setattr(stage.app.watch, "offset_s", lambda: offset_s)
        desk._enter(desk.regime._replace(role=Role.BASELINE, since_s=began_s))
        turn(stage)
        monkeypatch.setattr(Due, "turn", lambda *_: False)
        for later_s in (20, 50):
            monkeypatch.setattr(desk, "clock", lambda later_s=later_s: began_s + later_s)
            monkeypatch.setattr(desk, "follow", lambda: None)
            turn(stage)
            await tab.until(f"({ages})[2] === '{later_s} s'")
            assert await tab.run(ages) == [f"{later_s} s"] * 3


async def test_a_proxy_that_is_gone_is_told_across_the_page_and_its_words_go_dim(browser: Browser) -> None:
    dim = "getComputedStyle(document.querySelector('main > section')).opacity"
    async with shown(browser) as (stage, tab):
        turn(stage)
        assert await tab.run(dim) == "1"
        assert await tab.run("document.getElementById('gone').hidden")
        await stage.app.stop()
        await tab.until("!document.getElementById('gone').hidden")
        assert await tab.run(dim) == "0.5"
        line = await tab.run(text("gone"))
        assert line.startswith("✕ No word from the proxy for ") and "; this page shows what it said at " in line
        ages = "[...document.querySelectorAll('#story .age')].map((age) => age.textContent)"
        before = await tab.run(ages)
        await tab.until(f"{text('gone')} !== {line!r}")
        assert await tab.run(ages) != before, "ages go on by the same clock"


async def test_a_file_that_is_right_again_ends_what_the_refusal_began(browser: Browser) -> None:
    async with shown(browser) as (stage, tab):
        stage.app._reject(["queue.max_waiting must be a number", "listen.port too"])
        turn(stage)
        await tab.until(f"{text('last')}.includes('must be a number, and 1 more problem')")
        stage.app._source = lambda: stage.app.settings
        await stage.app.reload()
        turn(stage)
        await tab.until(f"{text('last')}.includes('The configuration was taken over')")
        assert "is right again" in await tab.run(text("story"))


@pytest.mark.parametrize(
    ("policy", "told"), [("overflow", "speculative (pins nothing: the policy is overflow)"), ("pinned", "speculative")]
)
async def test_a_pin_of_another_policy_is_said_to_pin_nothing(browser: Browser, policy: str, told: str) -> None:
    row = "[...document.querySelectorAll('#differences tr')].find((row) => row.textContent.includes('routing.pin'))"
    async with shown(browser, routing={"policy": policy, "pin": "speculative"}) as (_, tab):
        assert await tab.until(f"{row}.children[1].textContent") == told


async def test_a_moment_before_the_chart_is_told_as_such(browser: Browser) -> None:
    async with shown(browser) as (stage, tab):
        turn(stage)
        await tab.until("document.querySelector('#story li')")
        first = "document.querySelector('#story li:last-child')"
        await tab.run(f"{first}.querySelector('button').click()")
        assert "before the chart" not in await tab.run(text("instant")), "a start has its mark"
        await tab.run(
            "Promise.all([import('/web/store.js'), import('/web/charts.js')]).then(([{ now }, { Charts }]) => "
            "{ const charts = new Charts(() => []); charts.build(); charts.keep(now() - 7000); })"
        )
        assert "lies before the chart" in await tab.run(text("instant"))


async def test_a_curve_goes_on_beyond_its_last_point_as_routing_carries_it_on(browser: Browser) -> None:
    curves = ({1: 100.0, 8: 400.0, 16: 500.0}, {1: 60.0, 16: 900.0}, {4: 100.0, 8: 400.0}, {5: 250.0})
    async with shown(browser) as (_, tab):
        for points in curves:
            curve = SpeedCurve(tuple(SpeedPoint(*point) for point in points.items()))
            told = [{"in_flight": at, "tok_s": tok_s} for at, tok_s in points.items()]
            script = (
                f"import('/web/curvechart.js').then(({{ carried }}) => [17, 32, 90].map((n) => carried({told}, n)))"
            )
            assert await tab.run(script) == pytest.approx([curve.tok_s(n) for n in (17, 32, 90)])


@pytest.mark.parametrize(("in_flight", "gaps"), [(1, []), (0, [[2, 8]])])
async def test_a_mean_is_drawn_over_silence_only_while_something_runs(
    browser: Browser, in_flight: int, gaps: list[list[int]]
) -> None:
    async with shown(browser) as (_, tab):
        modules = "Promise.all([import('/web/store.js'), import('/web/timechart.js')])"
        script = f"""{modules}.then(([{{ store }}, chart]) => {{
            store.columns.speculative_in_flight = [1, 1, 1, ...Array(5).fill({in_flight}), 1, 1];
            const same = (value) => value;
            const u = {{ series: [{{}}, {{ label: "speculative" }}], valToPos: same, posToIdx: same }};
            return chart.wide(u, 1, 0, 9, [[2, 8]]);
        }})"""
        assert await tab.run(script) == gaps


async def test_no_letters_lie_on_others_however_narrow_the_page_and_near_the_levels(browser: Browser) -> None:
    sections = {"routing": {"policy": "threshold", "leave_at": 6, "enter_at": 5}}
    canvas = "document.querySelector('#charts canvas').texts.map(({ text }) => text)"
    async with staged(**sections) as stage, browser.tab() as tab:
        history = stage.app.watch.history
        first = history.take()
        history.samples.clear()
        for ago in range(300, 0, -1):
            many = first._replace(at_s=first.at_s - ago, speculative_in_flight=120, speculative_requests=9)
            history.samples.append(many._replace(waiting=100, baseline_in_flight=100, baseline_tok_s=12345.6))
        for ago in range(300, 0, -4):
            entry = stage.app.watch.journal.entries[0]
            stage.app.watch.journal.write(entry._replace(at_s=first.at_s - ago))
        stage.app.pin(Role.BASELINE)
        stage.app._reject(["listen.port cannot change while running; restart for it"] * 3)
        await open_page(tab, stage.app)
        for scheme in ("light", "dark"):
            await tab.prefer(scheme)
            for width in (360, 390, 768):
                await tab.size(width, 900)
                await tab.until(f"innerWidth === {width}")
                turn(stage)
                await tab.until(f"{canvas}.includes('H') && {canvas}.join().includes('enter_at 5')")
                assert await audited(tab) == [], f"{width} px, {scheme}"
