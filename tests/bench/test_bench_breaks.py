"""What breaks is seen as it is: of the product, which does it all well, and of the bare proxy, which does not."""

import sys
from collections.abc import Callable

import pytest
from bench.breaks import Stage, dead_before_first_byte, killed_flowing, leaves_plain, stage
from bench.contenders import BARE, OURS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are pinned and ended as on Linux")


def seen(name: str, probe: Callable[[Stage], str]) -> str:
    with stage(name, {}) as on:
        return probe(on)


def test_the_engine_sees_it_when_a_client_of_ours_leaves_before_the_first_byte() -> None:
    assert seen(OURS, leaves_plain).endswith(" ms")


def test_an_error_event_and_an_abnormal_end_are_seen_when_our_engine_is_killed() -> None:
    assert seen(OURS, killed_flowing).startswith("error event, no [DONE], cut, ")


def test_the_other_engine_answers_when_one_of_ours_is_dead() -> None:
    assert seen(OURS, dead_before_first_byte).startswith("6 x 200; slowest ")


def test_a_cut_without_a_word_is_seen_when_the_bare_proxy_s_engine_is_killed() -> None:
    assert seen(BARE, killed_flowing).startswith("no error event, no [DONE], cut, ")
