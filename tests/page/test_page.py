"""The status page in a real Chromium: it shows what happens, does what it is told after asking, and breaks nothing."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.browser import Browser, Tab
from fakes.curves import measured, one_sided, write
from fakes.held import Held
from fakes.pages import READY, audited, click, open_page, outside, shifted, text
from fakes.proxy import running
from fakes.raw import RawClient, ask, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import CircuitState, Role
from proxy.routing.breaker import Circuit
from proxy.routing.health import Evidence
from proxy.watch.due import Due

MAX_WEIGHT_BYTES = 300 * 1024
MAX_KEPT = 200  # decisions
LEVEL = "document.getElementById('notices').dataset.level"
# What hides a part of its text.
CUT = """[...document.querySelectorAll("#now, .lately, #verdict-more, .figures dd, #instant, nav, header")]
  .filter((element) => element.scrollHeight > element.clientHeight + 1 || element.scrollWidth > element.clientWidth + 1)
  .map((element) => `${element.id || element.className || element.tagName}: ${element.textContent}`)"""
pytestmark = pytest.mark.asyncio(loop_scope="module")


@contextlib.asynccontextmanager
async def shown(browser: Browser, tmp_path: Path, **sections: Any) -> AsyncIterator[tuple[Stage, Tab]]:
    """The page of a proxy with measured speeds. At the end nothing was complained of, and nobody else asked."""
    sections.setdefault("routing", {"curves_file": str(write(tmp_path, measured()))})
    async with staged(**sections) as stage, browser.tab() as tab:
        yield stage, tab
        assert tab.errors == []
        assert outside(tab.asked, stage.app) == []


def still(sentence: str) -> str:
    """A sentence without its numbers, which change from one look to the next."""
    return re.sub(r"[\d.,]+", "#", sentence)


async def chats(stage: Stage, *names: str, stream: bool = False) -> None:
    for name in names:
        await ask(stage.app.port, request("/v1/chat/completions", chat(stream=stream), f"x-request-id: {name}"))


def turn(stage: Stage, times: int = 1) -> None:
    """So many seconds pass at once."""
    for _ in range(times):
        stage.app.watch.turn()


# ---------------------------------------------------------------- what it shows


async def test_the_page_tells_where_requests_go_and_whether_speculation_pays(browser: Browser, tmp_path: Path) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        await chats(stage, "before")
        await open_page(tab, stage.app)
        assert still(await tab.run(text("now"))) == still(stage.app.status()["sentence"])
        assert await tab.run(text("verdict")) == "Yes, below about 6 in flight."
        assert "At 1,024 tokens of context: Baseline overtakes at 6" in await tab.run(text("verdict-more"))
        assert "95 % interval 5 to 7" in await tab.run(text("verdict-more"))
        assert await tab.run("document.querySelectorAll('#charts canvas, #curve canvas').length") == 6
        assert tab.received_bytes <= MAX_WEIGHT_BYTES
        await chats(stage, "fresh", stream=True)
        turn(stage)
        await tab.until(f"{text('rows')}.includes('fresh')")
        assert "it delays all requests least there" in await tab.run(text("rows"))
        assert await tab.run("document.querySelector('#rows td:nth-child(6)').textContent.includes(' s, ')")
        stage.app.pin(Role.BASELINE)
        turn(stage)
        await tab.until(f"{text('now')}.includes('an operator pinned')")
        await tab.until(f"{text('entries')}.includes('An operator pinned everything to baseline')")
        await tab.until(f"{text('story')}.includes('An operator pinned everything to baseline')")


@pytest.mark.parametrize("verdict", ["never_speculate", "always_speculate", "crossover_at"])
async def test_that_both_are_used_is_told_beside_every_verdict_unless_one_is_out(
    browser: Browser, tmp_path: Path, verdict: str
) -> None:
    curves = measured() if verdict == "crossover_at" else measured(contexts=[one_sided(verdict)])
    async with shown(browser, tmp_path, routing={"curves_file": str(write(tmp_path, curves))}) as (stage, tab):
        await open_page(tab, stage.app)
        told = await tab.run(text("verdict-more"))
        assert "Since each has its own GPUs, both are used" in told
        assert "Live traffic has shown too little yet" in told
        stage.app.drain_backend(Role.BASELINE, draining=True)
        turn(stage)
        await tab.until(f"!{text('verdict-more')}.includes('both are used')")
        assert "Live traffic" not in await tab.run(text("verdict-more"))


async def test_one_request_is_told_in_full(browser: Browser, tmp_path: Path) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        await chats(stage, "mine", stream=True)
        await open_page(tab, stage.app)
        await tab.run(click("#rows button[data-id=mine]"))
        await tab.until(f"{text('detail-what')}.includes('How it ended')")
        told = await tab.run(text("detail-what"))
        assert "finished, status 200" in told
        assert "Cost on baseline" in told


@pytest.mark.parametrize("name", [".", "..", "a/../b", "?x=#"])
async def test_a_request_of_any_id_is_told_in_full(browser: Browser, tmp_path: Path, name: str) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        await chats(stage, name)
        await open_page(tab, stage.app)
        await tab.run(click("#rows button.id"))
        await tab.until(f"{text('detail-what')}.includes('How it ended')")


async def test_a_clock_that_is_set_back_does_not_stop_the_page(browser: Browser, tmp_path: Path) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        watch, last = stage.app.watch, "globalThis.latest()"
        turn(stage)
        await open_page(tab, stage.app)
        await tab.run("import('/web/store.js').then(({ latest }) => { globalThis.latest = latest; })")
        before = await tab.run(last)
        watch.offset_s = lambda offset_s=watch.offset_s: offset_s() - 600.0  # type: ignore[method-assign,misc]
        turn(stage)
        await tab.until(f"{last} < {before - 500}")
        turned = await tab.run(last)
        turn(stage)
        await tab.until(f"{last} > {turned} && {last} < {before}")


async def test_a_jump_five_minutes_ago_is_found_and_told(browser: Browser, tmp_path: Path) -> None:
    async with shown(browser, tmp_path, routing={"leave_at": 2}) as (stage, tab):
        history = stage.app.watch.history
        first = history.take()
        quiet = first._replace(speculative_requests=2, speculative_in_flight=1)
        busy = first._replace(baseline_requests=20, baseline_in_flight=30)
        history.samples.clear()
        for ago in range(600, 0, -1):
            history.samples.append((quiet if ago > 300 else busy)._replace(at_s=first.at_s - ago))
        await open_page(tab, stage.app)
        told = (
            "The load rose from 1 to 30 in flight, and the traffic turned to baseline, 0 % of 12 requests in the 6 s "
            "before and 100 % of 120 after."
        )
        assert told in await tab.run(text("story"))
        await tab.run(
            "[...document.querySelectorAll('#story li')].find((li) => li.textContent.includes('turned'))"
            ".querySelector('button').click()"
        )
        await tab.until(f"{text('instant')}.includes('30 on baseline')")
        assert "5 min ago" in await tab.run(text("instant"))


async def test_the_cards_count_what_the_rows_count_before_the_state_comes_again(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        await open_page(tab, stage.app)
        turn(stage)
        monkeypatch.setattr(Due, "turn", lambda *_: False)
        card = "document.querySelector('.card.baseline [data-name=\"Sequences in flight\"]').textContent"
        await tab.until(f"{card}.startsWith('0 of 256')")
        with stage.app.desk.ledger.open(stage.app.desk.backend(Role.BASELINE).book, 3):
            turn(stage)
            await tab.until(f"{card}.startsWith('3 of 256')")


async def test_what_is_wrong_comes_first_and_is_in_the_header(browser: Browser, tmp_path: Path) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        await open_page(tab, stage.app)
        turn(stage)
        await tab.until(f"{text('standing')} === '✓ serving'")
        stage.app.drain_backend(Role.BASELINE, draining=True)
        turn(stage)
        await tab.until(f"{text('notice-lines')}.startsWith('! Baseline is drained')")
        assert await tab.run(LEVEL) == "held"
        backend = stage.app.desk.backend(Role.SPECULATIVE)
        backend.circuit = Circuit(CircuitState.OPEN, stage.app.desk.clock())
        turn(stage)
        await tab.until(f"{text('standing')} === '✕ not ready'")
        assert await tab.run(LEVEL) == "bad"
        assert (await tab.run(text("notice-lines"))).startswith("✕ No backend is eligible: /ready answers 503")
        assert await tab.run(text("all-notices")) == "Read all 3"
        await tab.run(click("#all-notices"))
        assert "Speculative failed too many requests in a row" in await tab.run(text("detail-what"))
        stage.app.drain_backend(Role.BASELINE, draining=False)
        backend.circuit = Circuit()
        turn(stage)
        await tab.until(f"{text('notice-lines')} === '✓ Nothing to warn of.'")
        assert await tab.run("document.title") == "Crossover"


async def test_refusals_are_in_the_headline_the_band_and_the_journal(browser: Browser, tmp_path: Path) -> None:
    curves = {"curves_file": str(write(tmp_path, measured()))}
    held = Held()
    async with (
        staged(held, held, max_in_flight=1, routing=curves, queue={"max_waiting": 0}) as stage,
        browser.tab() as tab,
        RawClient(stage.app.port) as one,
        RawClient(stage.app.port) as two,
    ):
        await open_page(tab, stage.app)
        for client in (one, two):
            await client.send(request("/v1/chat/completions", chat()))
        await until(lambda: stage.in_flight == 2)
        for _ in range(3):
            assert (await stage.ask()).status == 429
        turn(stage)
        await tab.until(f"{text('now')}.startsWith('New requests are refused, since speculative is full (1 of 1)')")
        await tab.until(f"{text('notice-lines')}.includes('New requests are refused with status 429')")
        await tab.until(f"{text('notice-lines')}.includes('3 requests were refused in the last 15 s')")
        await tab.until(f"{text('entries')}.includes('Requests begin to be refused: 3 requests so far (queue_full).')")
        held.opened.set()
        await until(lambda: stage.in_flight == 0)


async def test_the_last_change_is_not_hidden_by_a_reload_that_changed_nothing(browser: Browser, tmp_path: Path) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        await open_page(tab, stage.app)
        stage.app.pin(Role.BASELINE)
        await stage.app.reload()
        turn(stage)
        await tab.until(f"{text('entries')}.includes('nothing has changed')")
        assert "An operator pinned everything to baseline" in await tab.run(text("last"))
        assert "baselinepinned by an operator" in await tab.run(text("figures"))
        stage.app._reject(["listen.port cannot change while running; restart for it"])
        turn(stage)
        await tab.until(f"{text('last')}.includes('A changed configuration was refused')")


async def test_one_late_value_does_not_flatten_a_chart_and_an_idle_minute_favours_nobody(
    browser: Browser, tmp_path: Path
) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        history = stage.app.watch.history
        first = history.take()
        history.samples.clear()
        for ago in range(120, 0, -1):
            sample = first._replace(at_s=first.at_s - ago, speculative_requests=int(ago > 60), speculative_tpot_s=0.02)
            history.samples.append(sample._replace(speculative_tpot_s=0.65) if ago == 50 else sample)
        await open_page(tab, stage.app)
        charts = "[...document.querySelectorAll('#charts figure')].map((chart) => chart.textContent)"
        assert "some above, up to 0.65 s" in (await tab.run(charts))[4]
        modules = "Promise.all([import('/web/charts.js'), import('/web/store.js')])"
        script = f"{modules}.then(([charts, {{ store }}]) => charts.favoured(store.columns))"
        favoured = await tab.run(script)
        assert favoured[:60] == ["speculative"] * 60
        assert not any(favoured[75:])


async def test_words_of_the_page_say_what_was_so(browser: Browser, tmp_path: Path) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        await open_page(tab, stage.app)
        words = "import('/web/words.js').then((words) => ({}))"
        because = {"speculative_cost_s": 8.7, "baseline_cost_s": 3.24, "baseline_out": "down", "policy": "marginal"}
        decision = json.dumps({"role": "speculative", "because": because})
        told = words.format(f"[words.cost({decision}.because, 'baseline'), words.difference({decision})]")
        assert await tab.run(told) == ["down then", ""], "what was down would have cost nothing that counts"
        told = words.format("[words.duration(19.04), words.duration(19.6)]")
        assert await tab.run(told) == ["19 s", "19.6 s"]


@pytest.mark.parametrize("width", [360, 900, 1440])
async def test_no_sentence_is_cut(browser: Browser, tmp_path: Path, width: int) -> None:
    """The longest that there are: nothing of them is hidden without a sign."""
    async with shown(browser, tmp_path) as (stage, tab):
        await chats(stage, "one")
        await open_page(tab, stage.app, width=width)
        turn(stage)
        longest = (
            "New requests are split, lately 53 % to speculative: each goes where by the measured speeds it delays all "
            "requests least, the next to speculative (by 4.9 s, hardly less than on baseline, with 126 in flight on "
            "speculative and 256 on baseline); speculative is full (126 of 126); baseline has just come back and gets "
            "its share bit by bit; 100 requests wait for room."
        )
        kept = stage.app.status
        stage.app.watch._status = lambda: {**kept(), "sentence": longest}
        turn(stage, 6)
        await tab.until(f"{text('now')}.includes('100 requests wait for room')")
        assert await tab.run(CUT) == []


async def test_speeds_that_live_traffic_has_taught_are_drawn_beside_the_measured_ones(
    browser: Browser, tmp_path: Path
) -> None:
    drawn = """Promise.all([import('/web/curvechart.js'), import('/web/store.js')]).then(([{ CurveChart }]) => {
        const chart = new CurveChart(document.createElement('div'));
        chart.build();
        return chart.u.data;
    })"""
    legend = "[...document.querySelectorAll('#curve .mark.learned')].map((m) => getComputedStyle(m).visibility)"
    async with shown(browser, tmp_path) as (stage, tab):
        await open_page(tab, stage.app)
        assert await tab.run(legend) == ["hidden", "hidden"], "what is as measured is drawn once"
        assert (await tab.run(drawn))[3:] == [[None, None], [None, None]]
        told = stage.app.curves()
        [context] = told["learned"]["contexts"]
        context["speculative"] = [{"in_flight": 5.0, "tok_s": 125.0}, {"in_flight": 6.0, "tok_s": 123.0}]
        stage.app.curves = lambda: told  # type: ignore[method-assign]
        stage.app.watch.note("reload", "Whatever makes the page ask again.")
        await tab.run("import('/web/store.js').then(({ store }) => { globalThis.store = store; })")
        turn(stage)
        await tab.until("store.curves.learned.contexts[0].speculative[0].tok_s === 125")
        turn(stage)
        await tab.until(f"({legend})[0] === 'visible'")
        assert await tab.run(legend) == ["visible", "hidden"]
        xs, speculative, _, learned, other = await tab.run(drawn)
        assert (xs, speculative) == ([5, 6, 7], [250, None, 240])
        assert (learned, other) == ([125, 123, None], [None, None, None])


async def test_advice_names_the_file_that_the_operator_has(browser: Browser, tmp_path: Path) -> None:
    async with shown(browser, tmp_path, routing={}) as (stage, tab):
        settings = stage.app.settings
        stage.app.settings = settings.read_from(replace(settings.sources, file=Path("/etc/pair.yaml")))
        await open_page(tab, stage.app)
        for part in ("verdict-more", "curve"):
            assert "scripts/calibrate /etc/pair.yaml measures both backends" in await tab.run(text(part))


async def test_the_theme_is_the_systems_until_one_is_chosen(browser: Browser, tmp_path: Path) -> None:
    paper = "getComputedStyle(document.body).getPropertyValue('--paper').trim()"
    async with shown(browser, tmp_path) as (stage, tab):
        await tab.prefer("dark")
        await open_page(tab, stage.app)
        assert await tab.run(paper) == "#17202a"
        await tab.prefer("light")
        await tab.until(f"{paper} === '#ffffff'")
        for theme, ground in (("light", "#ffffff"), ("dark", "#17202a")):
            await tab.run(click("#theme"))
            assert await tab.run(text("theme")) == f"Theme: {theme}"
            assert await tab.run(paper) == ground
        await tab.open(f"http://127.0.0.1:{stage.app.admin_port}/")
        await tab.until(f"{READY} && {text('theme')} === 'Theme: dark' && {paper} === '#17202a'")
        await tab.run(click("#theme"))
        await tab.until(f"{paper} === '#ffffff'")


@pytest.mark.parametrize("policy", ["threshold", "overflow", "consolidate", "pinned"])
async def test_every_policy_makes_a_page(browser: Browser, tmp_path: Path, policy: str) -> None:
    curves = {"curves_file": str(write(tmp_path, measured()))} if policy == "consolidate" else {}
    async with shown(browser, tmp_path, routing={"policy": policy, **curves}) as (stage, tab):
        await chats(stage, "one")
        await open_page(tab, stage.app)
        assert still(await tab.run(text("now"))) == still(stage.app.status()["sentence"])
        assert policy in await tab.run(text("figures"))
        known = await tab.run(text("verdict"))
        assert known == ("Yes, below about 6 in flight." if curves else "Not known: nothing was measured here.")
        shows = await tab.run(
            "[...document.querySelectorAll('#charts .tall li:not([hidden]) span')].map(e => e.textContent)"
        )
        assert ("leave_at" in shows) is (policy in {"threshold", "overflow"})
        assert ("enter_at" in shows) is (policy == "threshold")


async def test_what_clients_and_engines_say_is_text_and_never_markup(browser: Browser, tmp_path: Path) -> None:
    mark = "<img/src=x/onerror=alert(1)>"
    async with shown(browser, tmp_path) as (stage, tab):
        await chats(stage, "plain")
        record = stage.app.desk.ring[-1]
        stage.app.desk.ring.append(record._replace(request_id=mark, route=mark))
        stage.app.watch.note("caution", mark, Role.BASELINE)
        await open_page(tab, stage.app)
        assert mark in await tab.run(text("rows"))
        assert mark in await tab.run(text("entries"))
        assert await tab.run("document.querySelectorAll('img').length") == 0


# ---------------------------------------------------------------- for everybody


async def test_nothing_is_faint_nameless_or_too_wide(browser: Browser, tmp_path: Path) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        await chats(stage, "one")
        await open_page(tab, stage.app)
        for scheme in ("light", "dark"):
            await tab.prefer(scheme)
            for width in (360, 900, 1440, 3840):
                await tab.size(width, 900)
                await tab.until(f"innerWidth === {width}")
                assert await audited(tab) == [], f"{width} px, {scheme}"


@pytest.mark.parametrize("width", [360, 1440])
async def test_nothing_moves_while_much_changes(browser: Browser, tmp_path: Path, width: int) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        await open_page(tab, stage.app, width=width)
        wishes = (Role.BASELINE, None, Role.SPECULATIVE, None)
        for number, wish in enumerate(wishes):
            await chats(stage, *(f"r{number}-{each}" for each in range(1, 4)), stream=number % 2 == 1)
            stage.app.pin(wish)
            stage.app.drain_backend(Role.SPECULATIVE, draining=wish is Role.BASELINE)
            turn(stage)
            await tab.until(f"{text('rows')}.includes('r{number}-3')")
            await tab.until(f"document.getElementById('unpin').hidden === {str(wish is None).lower()}")
        moved = await shifted(tab)
        assert sum(value for value, _ in moved) < 0.01, moved


async def test_the_charts_are_read_by_keyboard_and_have_words(browser: Browser, tmp_path: Path) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        history = stage.app.watch.history
        last = history.take()
        history.samples.extendleft(last._replace(at_s=last.at_s - ago) for ago in range(1, 30))
        await open_page(tab, stage.app)
        labels = await tab.run("[...document.querySelectorAll('[role=img]')].map(e => e.getAttribute('aria-label'))")
        assert len(labels) == 6
        assert all("speculative" in label and "baseline" in label for label in labels)
        await tab.run("document.querySelector('#charts .plot').focus()")
        await tab.press("ArrowLeft")
        await tab.until(f"{text('instant')}.includes('in flight on speculative')")
        earlier = await tab.run(text("instant"))
        await tab.press("Home")
        await tab.until(f"{text('instant')} !== {earlier!r}")
        await tab.press("Enter")
        await tab.run("document.activeElement.blur()")
        assert "in flight on speculative" in await tab.run(text("instant"))
        reached = set()
        await tab.run("document.body.focus()")
        for _ in range(40):
            await tab.press("Tab")
            reached.add(await tab.run("document.activeElement.id || document.activeElement.className"))
        assert {"theme", "pause", "reload", "plot", "entries", "story"} <= reached


# ---------------------------------------------------------------- what it does


async def test_nothing_is_done_before_it_is_confirmed(browser: Browser, tmp_path: Path) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        await open_page(tab, stage.app)
        await tab.run(click(".card.baseline button"))
        assert await tab.run("document.getElementById('ask').open")
        assert await tab.run("document.activeElement.id") == "ask-no"
        await tab.press("Enter")
        await tab.until("!document.getElementById('ask').open")
        assert stage.app.desk.rules.operator_pin is None
        await tab.run(click(".card.baseline button"))
        await tab.run(click("#ask-yes"))
        await until(lambda: stage.app.desk.rules.operator_pin is Role.BASELINE)
        turn(stage)
        await tab.until("!document.getElementById('unpin').hidden")
        await tab.run(click("#unpin"))
        await tab.run(click("#ask-yes"))
        await until(lambda: stage.app.desk.rules.operator_pin is None)
        await tab.run(click(".card.speculative .buttons button:last-child"))
        await tab.run(click("#ask-yes"))
        await until(lambda: stage.app.desk.backend(Role.SPECULATIVE).draining)
        turn(stage)
        await tab.until("document.querySelector('.card.speculative .state').textContent.includes('Draining')")


async def test_a_reload_tells_what_changed_or_why_it_was_refused(browser: Browser, tmp_path: Path) -> None:
    async with staged() as stage, browser.tab() as tab:
        routing = stage.app.settings.routing.model_copy(update={"leave_at": 20})
        changed = stage.app.settings.model_copy(update={"routing": routing})
        stage.app._source = lambda: changed
        await open_page(tab, stage.app)
        await tab.until(f"{text('differences')}.includes('routing.leave_at')")
        assert "The file differs from what is in force" in await tab.run(text("differences"))
        await tab.run(click("#reload"))
        await tab.run(click("#ask-yes"))
        await tab.until(f"{text('ask-result')}.includes('routing.leave_at: 9 -> 20')")
        await tab.until(f"{text('differences')}.includes('The file is in force as it is')")
        listen = stage.app.settings.listen.model_copy(update={"port": 1234})
        stage.app._source = lambda: changed.model_copy(update={"listen": listen})
        await tab.run(click("#ask-no"))
        await tab.run(click("#reload"))
        await tab.run(click("#ask-yes"))
        await tab.until(f"{text('ask-result')}.includes('listen.port cannot change while running')")
        # The refusal is an answer of 422, which a browser's console tells as an error of the network.
        assert all("422" in error for error in tab.errors)


async def test_the_token_is_asked_for_once_and_then_holds_for_everything(browser: Browser, tmp_path: Path) -> None:
    async with shown(browser, tmp_path, admin={"port": 0, "token": "sesame"}) as (stage, tab):
        tab.errors = []
        tab.log_in("operator", "sesame")
        await open_page(tab, stage.app)
        turn(stage)
        await tab.run(click(".card.baseline button"))
        await tab.run(click("#ask-yes"))
        await until(lambda: stage.app.desk.rules.operator_pin is Role.BASELINE)
        assert tab.logged_in == 1


# ---------------------------------------------------------------- when much happens, or nothing


async def test_ten_thousand_decisions_a_minute_do_not_grow_the_page(browser: Browser, tmp_path: Path) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        await chats(stage, "first")
        await open_page(tab, stage.app)
        desk, record = stage.app.desk, stage.app.desk.ring[-1]
        sizes = []
        for second in range(12):
            for number in range(170):
                desk.ring.append(record._replace(at_s=desk.clock(), request_id=f"r{second}-{number}"))
                desk.on_decision(record.decision)
            turn(stage)
            await tab.until(f"{text('rows')}.includes('r{second}-169')")
            sizes.append(await tab.run("document.querySelectorAll('*').length"))
        assert "170 decisions in the last second" in await tab.run(text("rate"))
        assert sizes[-1] == sizes[5], "what is shown is bounded"
        assert await tab.run("import('/web/store.js').then(({ store }) => store.decisions.length)") <= MAX_KEPT


async def test_a_proxy_that_goes_is_told_and_one_that_comes_back_is_followed(browser: Browser, tmp_path: Path) -> None:
    async with shown(browser, tmp_path) as (stage, tab):
        await open_page(tab, stage.app)
        port = stage.app.admin_port
        admin = stage.app.settings.admin.model_copy(update={"port": port})
        await stage.app.stop()
        await tab.until("document.getElementById('link').dataset.state === 'broken'")
        async with running(stage.app.settings.model_copy(update={"admin": admin})) as second:
            second.desk.observe_health(second.desk.backend(Role.SPECULATIVE), Evidence.REFUSED)
            await tab.until("document.getElementById('link').dataset.state === 'live'")
            assert still(await tab.run(text("now"))) == still(second.status()["sentence"])
            await asyncio.sleep(0)
        # What could not be fetched meanwhile is in the console, by the browser itself.
        tab.errors = [error for error in tab.errors if "ERR_" not in error]
