"""Each refused value is told with what must be there, what is there, the range and the mend."""

from pathlib import Path

import pytest

from proxy.config import InvalidConfig, from_mapping, load

BACKENDS = 'backends: {speculative: {url: "http://a:1"}, baseline: {url: "http://b:2"}}\n'


def told(tmp_path: Path, section: str, **environ: str) -> str:
    """The only problem of a file, without its place."""
    path = tmp_path / "crossover.yaml"
    path.write_text(BACKENDS + section)
    with pytest.raises(InvalidConfig) as caught:
        load(path, environ)
    assert len(caught.value.problems) == 1, caught.value.message
    return f"{caught.value.problems[0].key}: {caught.value.problems[0].message}"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            "listen: {port: '8080'}",
            'listen.port: must be a whole number, not the text "8080"; allowed: 0 to 65535; '
            "mend: write it without quotes: `port: 8080`",
        ),
        (
            "listen: {port: 70000}",
            "listen.port: must be a whole number, not 70000; allowed: 0 to 65535; "
            "mend: write `port: 30000` or the like",
        ),
        (
            "routing: {min_dwell_s: 2s}",
            'routing.min_dwell_s: must be a number of seconds, not the text "2s"; allowed: 0 to 3600; '
            "mend: write seconds as a number: `min_dwell_s: 2`",
        ),
        (
            "health: {max_misses: 3.0}",
            "health.max_misses: must be a whole number, not 3.0; allowed: 1 to 100; "
            "mend: write a whole number, such as 3",
        ),
        (
            "routing: {allow_header: off}",
            'routing.allow_header: must be true or false, not the text "off"; mend: write false, without quotes',
        ),
        (
            "routing: {policy: tresholds}",
            "routing.policy: must be one of auto, marginal, consolidate, threshold, overflow, pinned, "
            'not the text "tresholds"; mend: did you mean threshold?',
        ),
        (
            "routing: {pin: fast}",
            'routing.pin: must be one of speculative, baseline, not the text "fast"; '
            "mend: write speculative or baseline",
        ),
        (
            "queue: 100",
            "queue: must be a mapping, not 100; mend: write its keys below it, indented: max_waiting, max_wait_s",
        ),
        (
            "queue: {max_waiting: }",
            "queue.max_waiting: must be a whole number, not nothing; allowed: 0 to 100000; "
            "mend: give it a value, such as `max_waiting: 100`, or remove the key",
        ),
        (
            "routing: {rules: all}",
            'routing.rules: must be a list, not the text "all"; '
            "mend: write a list below it, each entry begun with a dash, or `rules: []`",
        ),
        ("routing: {rules: [{when: session}]}", "routing.rules.0.role: is required; mend: add `role: speculative`"),
    ],
)
def test_refused_value_is_told_in_full(tmp_path: Path, section: str, message: str) -> None:
    assert told(tmp_path, section) == message


@pytest.mark.parametrize(
    ("section", "mend"),
    [
        ("timeouts: {stall_s: 500 ms}", "`stall_s: 0.5`"),
        ("timeouts: {stall_s: 2m}", "`stall_s: 120`"),
        ("timeouts: {stall_s: 1.5h}", "`stall_s: 5400`"),
        ("listen: {max_body_bytes: 64MiB}", "`max_body_bytes: 67108864`"),
        ("listen: {max_body_bytes: 1 GB}", "`max_body_bytes: 1000000000`"),
        ("retries: {max_ratio: 10%}", "write the number alone: `max_ratio: 0.1`"),
        ("queue: {max_waiting: 1_000}", "write the digits alone: `max_waiting: 1000`"),
        ("queue: {max_waiting: '1,000'}", "write the digits alone: `max_waiting: 1000`"),
        ("queue: {max_waiting: 0100}", "write the digits alone: `max_waiting: 100`"),
        ("queue: {max_waiting: many}", "write a number, such as `max_waiting: 100`"),
        ("queue: {max_waiting: true}", "write `max_waiting: 100` or the like"),
        ("queue: {max_wait_s: 1e999}", "write `max_wait_s: 60` or the like"),
        ("queue: {max_waiting: 1.5}", "write a whole number, such as 2"),
        ("queue: {max_waiting: [1]}", "write one value, such as `max_waiting: 100`"),
        ("routing: {allow_header: 'true'}", "write true, without quotes"),
        ("routing: {allow_header: 1}", "write `allow_header: false` or the like"),
        ("routing: {allow_header: maybe}", "write true or false, without quotes"),
        ("listen: {host: 5}", "put it in quotes"),
        ("listen: {port: '${PORT}'}", "set the variable to such a value"),
        ("log: {level: INFO}", "did you mean info?"),
        ("placement: 3", "write `placement: separate` or the like"),
    ],
)
def test_mend_fits_the_mistake(tmp_path: Path, section: str, mend: str) -> None:
    assert told(tmp_path, section, PORT="eighty").endswith(mend)


def test_value_of_a_variable_is_named_and_not_shown(tmp_path: Path) -> None:
    message = told(tmp_path, "listen:\n  port: ${PORT:-x}\n", PORT="eighty")
    assert "not the value of ${PORT};" in message
    assert "eighty" not in message


@pytest.mark.parametrize(
    ("section", "mend"),
    [
        ("routing: {min_dwell: 2}", "did you mean min_dwell_s?"),
        ("routing: {min_dwell_ms: 2}", "did you mean min_dwell_s?"),
        ("listen: {max-body-bytes: 2000}", "did you mean max_body_bytes?"),
        ("listen: {Port: 1}", "did you mean port?"),
        ("timeout: {stall_s: 1}", "did you mean timeouts?"),
        ("leave_at: 9", "did you mean routing.leave_at? Check the section and the indent"),
        ("routing: {stall_s: 9}", "did you mean timeouts.stall_s? Check the section and the indent"),
        ("routing: {leave_at: 9, leeve: 8}", "remove it; leave_at is in the file already"),
        ("routing: {leave_at: 9}\nleave_at: 8", "remove it; routing.leave_at is in the file already"),
        ("listen: {port:8080}", "write a space after the colon"),
        ("listen: {zzz: 1}", "remove it, or check its spelling"),
        ("listen: {'': 1}", "remove it, or check its spelling"),
    ],
)
def test_unknown_key_is_told_with_the_nearest_name(tmp_path: Path, section: str, mend: str) -> None:
    message = told(tmp_path, section)
    assert "is not a key here; allowed: " in message
    assert message.endswith(f"mend: {mend}")


@pytest.mark.parametrize("section", ["workers: 2", "listen: {workers: 2}", "num_workers: 4", "routing: {Processes: 2}"])
def test_a_wish_for_several_processes_is_told_why_there_is_one_and_what_to_do(tmp_path: Path, section: str) -> None:
    mend = told(tmp_path, section).partition("mend: ")[2]
    assert "each counts its own requests alone" in mend
    assert mend.startswith("remove it; ")
    assert mend.endswith("start a Crossover for each pair, on its own ports")


def test_choice_of_word_or_number_is_one_problem() -> None:
    for value, seen in (("Auto", 'the text "Auto"'), (0, "0"), (1.0, "1.0")):
        backends = {"speculative": {"url": "http://a:1", "max_in_flight": value}, "baseline": {"url": "http://b:2"}}
        with pytest.raises(InvalidConfig) as caught:
            from_mapping({"backends": backends})
        assert [problem.message.split("; mend")[0] for problem in caught.value.problems] == [
            f"must be auto or a whole number, not {seen}; allowed: auto or 1 to 100000"
        ]


def test_missing_url_is_told_with_an_example_for_its_role() -> None:
    with pytest.raises(InvalidConfig) as caught:
        from_mapping({})
    assert [str(problem) for problem in caught.value.problems] == [
        "settings: backends.baseline.url: is required; mend: add `url: http://127.0.0.1:30002`",
        "settings: backends.speculative.url: is required; mend: add `url: http://127.0.0.1:30001`",
    ]
