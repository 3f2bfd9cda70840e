"""What the page finds in the history by itself: levels of load that lasted, and traffic that turned, in their order."""

import itertools
import json
import random
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
import pytest_asyncio
from fakes.browser import Browser, Tab
from fakes.pages import open_page
from fakes.stage import staged

from proxy.watch.history import COLUMNS

RAMP = [1, 2, 4, 8, 16, 32, 16, 8, 4, 2, 1]
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tab(browser: Browser) -> AsyncIterator[Tab]:
    """The page of a proxy that has nothing to do: only its modules are asked."""
    async with staged() as stage, browser.tab() as opened:
        await open_page(opened, stage.app)
        yield opened


def second(
    speculative: int = 0, baseline: int = 0, *, to: tuple[int, int] | None = None, **more: int
) -> dict[str, int]:
    """One second with so many in flight, and requests `to` both, by default as many."""
    requests = (speculative, baseline) if to is None else to
    counts = {"speculative_in_flight": speculative, "baseline_in_flight": baseline, **more}
    return {**counts, "speculative_requests": requests[0], "baseline_requests": requests[1]}


async def found(tab: Tab, seconds: Iterable[dict[str, int]], entries: Iterable[dict[str, Any]] = ()) -> list[list[Any]]:
    """The instants and sentences of what is found; the first second is 1."""
    rows = [[at_s, *(each.get(name, 0) for name in COLUMNS[1:])] for at_s, each in enumerate(seconds, 1)]
    fill = {"columns": COLUMNS, "step_s": 1.0, "samples": rows}
    newest_first = sorted(entries, key=lambda each: -each["at_s"])
    told: list[list[Any]] = await tab.run(
        f"""Promise.all([import('/web/store.js'), import('/web/turns.js')]).then(([store, turns]) => {{
            const kept = {{ ...store.store }};
            store.fill({json.dumps(fill)});
            store.store.entries = {json.dumps(newest_first)};
            const found = turns.turns().map(({{ at_s, sentence }}) => [at_s, sentence]);
            Object.assign(store.store, kept);
            return found;
        }})"""
    )
    return told


async def test_each_level_of_a_ramp_is_told_once_by_what_it_settled_at(tab: Tab) -> None:
    seconds = [second(level) for level in RAMP for _ in range(10)]
    told = await found(tab, seconds)
    words = [f"from {one} to {other} in flight." for one, other in itertools.pairwise(RAMP)]
    assert [sentence[len("The load rose ") :] for _, sentence in told] == words
    assert [at_s for at_s, _ in told] == [10.5 + 10 * step for step in range(10)], "when the load began to move"


async def test_what_was_told_stays_told_as_more_comes(tab: Tab) -> None:
    seconds = [second(level) for level in RAMP for _ in range(10)] + [second(1)] * 20
    told = [await found(tab, seconds[:end]) for end in range(15, len(seconds) + 1)]
    for before, after in itertools.pairwise(told):
        assert after[: len(before)] == before


async def test_a_level_that_is_drained_to_and_wavers_a_little_is_still_the_one_it_settles_at(tab: Tab) -> None:
    falling = [32, 32, 31, 32, 32, 32, 27, 21, 18, 16, 16, 15, 16, 16, 16, 16, 15, 16, 9, 3, 8, 8, 8, 7, 8, 8, 8, 8, 8]
    told = await found(tab, map(second, falling))
    assert [sentence for _, sentence in told] == [
        "The load fell from 32 to 16 in flight.",
        "The load fell from 16 to 8 in flight.",
    ]
    assert [at_s for at_s, _ in told] == [6.5, 18.5]


async def test_each_step_of_a_fall_as_it_was_seen_is_told_at_its_time(tab: Tab) -> None:
    """Old answers end one after the other as the clients become fewer, and hold the load between two levels."""
    fall = [32] * 10 + [
        24,
        24,
        24,
        24,
        22,
        19,
        16,
        16,
        16,
        15,
        15,
        8,
        8,
        8,
        8,
        8,
        8,
        8,
        7,
        5,
        *[4] * 6,
        3,
        3,
        3,
        *[2] * 6,
    ]
    told = await found(tab, map(second, [*fall, *[1] * 11, *[0] * 12]))
    words = [
        f"The load fell from {one} to {other} in flight." for one, other in itertools.pairwise((32, 16, 8, 4, 2, 1))
    ]
    assert told == [[at_s + 0.5, sentence] for at_s, sentence in zip((10, 21, 28, 36, 45), words, strict=True)]


async def test_a_level_to_which_the_last_answers_of_the_one_before_still_come_is_told_without_them(tab: Tab) -> None:
    told = await found(tab, map(second, [*[32] * 10, 24, 19, *[17] * 3, *[16] * 8, *[8] * 10]))
    assert [sentence for _, sentence in told] == [
        "The load fell from 32 to 16 in flight.",
        "The load fell from 16 to 8 in flight.",
    ]


async def test_small_loads_that_come_and_go_are_no_steps(tab: Tab) -> None:
    quiet = [0, 1, 1, 0, 1, 2, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2, 3, 2, 1, 1, 0, 0, 1, 1, 2, 2, 1, 1, 1, 0, 0] * 3
    assert await found(tab, map(second, quiet)) == []


async def test_requests_that_come_by_chance_make_few_steps_and_a_jump_among_them_is_told(tab: Tab) -> None:
    chance = random.Random(3)

    def waver(rate: float, seconds: int) -> list[int]:
        """What is in flight when requests of five seconds on average come by chance."""
        loads = [0] * seconds
        for second_ in range(seconds * 10):
            if chance.random() < rate / 10:
                ends_s = second_ / 10 + chance.expovariate(0.2)
                for at in range(second_ // 10, min(seconds, int(ends_s) + 1)):
                    loads[at] += 1
        return loads

    assert len(await found(tab, map(second, waver(1.0, 1200)))) <= 6
    told = await found(tab, map(second, waver(0.5, 200)[20:] + waver(9.0, 120)[20:]))
    assert any(175 <= at_s <= 185 and "The load rose" in sentence for at_s, sentence in told)


async def test_load_that_never_settles_is_told_all_the_same(tab: Tab) -> None:
    told = await found(tab, map(second, [1] * 20 + [20, 35, 22, 40, 25, 38, 21, 37, 24, 36] * 3))
    assert [at_s for at_s, _ in told] == [20.5]
    assert told[0][1].startswith("The load rose from 1 to ")


async def test_the_load_comes_before_the_regime_that_it_led_to_and_nothing_tells_that_again(tab: Tab) -> None:
    seconds = [second(1, to=(2, 0))] * 30 + [second(0, 16, to=(0, 16))] * 30
    regime = {
        "kind": "regime",
        "role": "baseline",
        "at_s": 30.2,
        "sentence": "Baseline is favoured now.",
        "numbers": {},
    }
    [[at_s, sentence]] = await found(tab, seconds, [regime])
    assert 30.0 < at_s < 30.2
    assert sentence == "The load rose from 1 to 16 in flight."


async def test_a_turn_that_the_load_led_to_is_told_with_it_and_once(tab: Tab) -> None:
    seconds = [second(1, to=(2, 0))] * 30 + [second(0, 16, to=(0, 16))] * 30
    assert await found(tab, seconds) == [
        [
            30.5,
            "The load rose from 1 to 16 in flight, and the traffic turned to baseline, 0 % of 12 requests in the 6 s "
            "before and 100 % of 96 after.",
        ]
    ]


async def test_an_even_split_is_no_turn(tab: Tab) -> None:
    seconds = [second(0, 1, to=(0, 1))] * 30 + [second(2, 2, to=(1, 1))] * 30
    [[_, sentence]] = await found(tab, seconds)
    assert sentence == (
        "The load rose from 1 to 4 in flight: 50 % of 12 requests in the 6 s after went to speculative, 0 % of 6 "
        "before."
    )


@pytest.mark.parametrize("kind", ["regime", "pin", "drain", "health"])
async def test_a_turn_that_the_journal_explains_is_not_told_again(tab: Tab, kind: str) -> None:
    seconds = [second(4, to=(2, 0))] * 30 + [second(0, 4, to=(0, 2))] * 30
    assert len(await found(tab, seconds)) == 1
    why = {"kind": kind, "role": "baseline", "at_s": 28.0, "sentence": "", "numbers": {}}
    assert await found(tab, seconds, [why]) == []


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ("named", "The callers of 8 requests in a row named their backend: all went to baseline."),
        ("ruled", "A rule of the configuration sent 8 requests in a row to baseline."),
    ],
)
async def test_a_turn_that_callers_or_a_rule_made_is_not_laid_on_the_load(tab: Tab, column: str, why: str) -> None:
    seconds = [second(16, to=(2, 0))] * 30 + [second(0, 4, to=(0, 2), **{column: 2})] * 30
    told = [sentence for _, sentence in await found(tab, seconds)]
    assert told == ["The load fell from 16 to 4 in flight.", why]


async def test_that_callers_choose_is_told_as_soon_as_it_is_certain_and_so_is_its_end(tab: Tab) -> None:
    named = [second(4, to=(2, 0), named=2)] * 5
    seconds = [second(2, 2, to=(1, 1))] * 20 + named + [second(2, 2, to=(1, 1))] * 20
    assert await found(tab, seconds[:23]) == []
    told = await found(tab, seconds[:24])
    assert told == [[20.5, "The callers of 8 requests in a row named their backend: all went to speculative."]]
    words = "Requests go by the policy again: of 8 in a row none was sent by its caller or by a rule."
    assert await found(tab, seconds) == [*told, [25.5, words]]


async def test_few_callers_that_choose_among_many_others_are_nothing_to_tell(tab: Tab) -> None:
    assert await found(tab, [second(4, to=(3, 3), named=each % 4) for each in range(60)]) == []
    assert await found(tab, [second(2, to=(2, 0), named=2)] * 30) == [], "it was so before the history begins"
