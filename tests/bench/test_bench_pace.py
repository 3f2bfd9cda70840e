"""When the fake engine's events are due."""

from bench.pace import Pace

INTERVAL_NS = 1_000_000


def begun(streams: int, *, spread: bool, now_ns: int = 5_000_300) -> Pace[int]:
    pace: Pace[int] = Pace()
    for stream in range(streams):
        pace.begin(stream, INTERVAL_NS, now_ns + stream, spread=spread)
    return pace


def turns(pace: Pace[int], now_ns: int, *, again: bool = True) -> list[int]:
    had: list[int] = []

    def turn(stream: int) -> bool:
        had.append(stream)
        return again

    pace.run(now_ns, turn)
    return had


def test_every_stream_has_one_turn_in_each_interval_when_they_are_spread() -> None:
    pace = begun(50, spread=True)

    for interval in range(1, 4):
        assert sorted(turns(pace, 5_000_350 + interval * INTERVAL_NS)) == list(range(50))


def test_turns_lie_evenly_when_streams_are_spread() -> None:
    pace = begun(100, spread=True)
    start_ns = 6_001_000

    turns(pace, start_ns)
    tenths = [len(turns(pace, start_ns + tenth * INTERVAL_NS // 10)) for tenth in range(1, 11)]

    assert sum(tenths) == 100
    assert all(8 <= had <= 12 for had in tenths)


def test_all_streams_have_their_turns_at_once_when_they_are_on_a_tick() -> None:
    pace = begun(8, spread=False)

    assert turns(pace, 5_999_999) == []
    assert turns(pace, 6_000_000) == list(range(8))


def test_a_late_turn_delays_no_other_when_the_engine_was_held_up() -> None:
    pace = begun(1, spread=False)

    assert turns(pace, 8_500_000) == [0, 0, 0]  # 6, 7 and 8 ms
    assert pace.wait_s(8_500_000) == 0.0005


def test_a_stream_has_no_further_turn_when_it_wants_none() -> None:
    pace = begun(2, spread=False)

    turns(pace, 6_000_000, again=False)

    assert pace.wait_s(6_000_000) is None
