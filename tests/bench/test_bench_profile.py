"""Profiles and counts are told by the unit of work, and of what the proxy does once it serves."""

import cProfile
from pathlib import Path

from bench import hot, syscalls

SAID = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 61.23    0.123456          12      4000       150 read
 38.77    0.010000           1       300           write
------ ----------- ----------- --------- --------- ----------------
100.00    0.133456          13      4300       150 total
"""


def request_ended() -> None:
    """Stands for the proxy's own."""


def came() -> None:
    """Stands for the proxy's own."""


def told(lines: str, ending: str) -> list[str]:
    return next(line.split() for line in lines.splitlines() if line.endswith(ending))


def test_system_calls_are_told_by_the_unit_with_the_most_frequent_first() -> None:
    lines = syscalls.table(SAID, "streams", 10, 1000).splitlines()
    assert [line.split() for line in lines[1:]] == [["4.300", "all"], ["4.000", "read"], ["0.300", "write"]]
    assert "10 requests, 1000 units" in lines[0]


def test_calls_of_a_profile_are_told_by_the_unit(tmp_path: Path) -> None:
    path = tmp_path / "any.prof"
    with cProfile.Profile() as profile:
        for _ in range(8):
            request_ended()
            for _ in range(4):
                came()
    profile.dump_stats(path)
    by_request = hot.top(path, "plain", Path(__file__).parent)
    assert "plain: 8 units" in by_request
    assert told(by_request, " request_ended")[0] == "1.00"
    by_event = hot.top(path, "load", Path(__file__).parent, hot.ONCE_AN_EVENT)
    assert told(by_event, " request_ended")[0] == "0.25"
