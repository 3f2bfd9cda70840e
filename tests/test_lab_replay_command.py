"""`crossover replay` from its command line to its words, on logs that the simulation itself has written."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from fakes.interpreter import ran
from fakes.logged import FACTS, line, sent_to

from proxy import config
from proxy.__main__ import main
from proxy.lab.replay.candidates import Ground, bare_settings, with_limits
from proxy.lab.replay.engines import engines_of, speeds_of
from proxy.lab.replay.rerun import Rerun
from proxy.lab.replay.traffic import Came, Traffic
from proxy.model import ROLES, Placement, Traits, Usage

CURVES = """version: 1
measured_at: "2026-11-30T04:12:00Z"
placement: separate
contexts:
  - context_tokens: 512
    verdict: crossover_at
    crossings: [{at: 4.5, low: 4, high: 5, faster_above: baseline}]
    speculative: [{in_flight: 1, tok_s: 90}, {in_flight: 4, tok_s: 250}, {in_flight: 16, tok_s: 400}]
    baseline: [{in_flight: 1, tok_s: 60}, {in_flight: 4, tok_s: 220}, {in_flight: 16, tok_s: 800}]
    speculative_prefill_tok_s: 8000
    baseline_prefill_tok_s: 8000
"""
BACKENDS = 'backends: {speculative: {url: "http://127.0.0.1:1"}, baseline: {url: "http://127.0.0.1:2"}}\n'
# All of the least traffic that has enough blocks of time, and the fewest ways.
COUNT, RATE = 1200, 2.5
FEW = ("--policy", "auto,overflow:2,two_baselines", "--resamples", "200")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The speeds, and a log of what `overflow:12` gives with them: too many for the speculative backend."""
    made = tmp_path_factory.mktemp("replay")
    (made / "curves.yaml").write_text(CURVES)
    (made / "access.log").write_bytes(b"".join(_lived(made / "curves.yaml")))
    return made


def _lived(curves: Path, said: str = "overflow:12") -> Iterator[bytes]:
    rng, at_s, rows = Random(7), 0.0, list[Came]()
    for _ in range(COUNT):
        at_s += rng.expovariate(RATE)
        tokens = max(1, round(rng.expovariate(1 / 80)))
        traits = Traits(1, True, None, 1600)
        rows.append(Came(at_s, 400, 400, tokens, float(tokens), FACTS.route, traits))
    traffic = Traffic(tuple(rows))
    engines = engines_of(speeds_of(str(curves)), traffic, Placement.SEPARATE, None)
    found = Ground(with_limits(bare_settings(Placement.SEPARATE), engines.limits), engines).candidate(said)
    times = Rerun(found.arm, found.bounds, traffic).run()
    for n, came in enumerate(rows):
        facts = FACTS._replace(
            decision=sent_to(ROLES[0] if times.speculative[n] else ROLES[1]),
            duration_s=times.e2e_s[n],
            ttft_s=times.ttft_s[n],
            traits=came.traits,
            usage=Usage(400, came.tokens),
        )
        # The fake's lines say leave_at: 9; what was in force is told truly.
        text = line(facts, came.at_s)
        yield text.replace(b'"leave_at":9', b'"leave_at":12')


def _said(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["replay", *argv]) == 0
    found = capsys.readouterr()
    assert found.err == ""
    return found.out


def _refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["replay", *argv]) == 1
    return capsys.readouterr().err


def _json(capsys: pytest.CaptureFixture[str], folder: Path, *argv: str) -> dict[str, object]:
    file = folder / "found.json"
    _said(capsys, *argv, "--json", str(file))
    found: dict[str, object] = json.loads(file.read_bytes())
    return found


def test_life_that_was_as_the_curves_say_is_found_again_and_a_better_rule_with_it(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    found = _json(capsys, folder, str(folder / "access.log"), "--curves", str(folder / "curves.yaml"), *FEW)
    check = found["check"]
    assert isinstance(check, dict)
    assert check["in_force"] == "overflow:12"
    # Its times are rounded to the microsecond, and the place of a request within a step is another.
    assert check["ratio"] == pytest.approx(1.0, abs=0.02)
    assert check["simulated"]["share_speculative"] == pytest.approx(check["measured"]["share_speculative"], abs=0.03)
    advice = found["advice"]
    assert isinstance(advice, dict)
    assert advice["kind"] == "change"
    assert advice["routing"]["policy"] == "auto"


def test_what_is_advised_is_a_configuration_that_the_proxy_takes(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    file = folder / "crossover.yaml"
    file.write_text(f"{BACKENDS}routing: {{policy: overflow, leave_at: 12}}\n")
    said = _said(capsys, str(folder / "access.log"), str(file), "--curves", str(folder / "curves.yaml"), *FEW)
    assert "as it is: overflow:12" in said
    (folder / "advised.yaml").write_text(BACKENDS + said[said.index("routing:\n") :])
    settings = config.load(folder / "advised.yaml", {})
    assert settings.routing.curves_file == "curves.yaml"
    assert main(["check", "--offline", str(folder / "advised.yaml")]) == 0


def test_several_processes_say_the_same_as_one(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    argv = (str(folder / "access.log"), "--curves", str(folder / "curves.yaml"), *FEW)
    assert _said(capsys, *argv) == _said(capsys, *argv, "--jobs", "2")


def test_rotated_logs_are_read_together(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    lines = (folder / "access.log").read_bytes().splitlines(keepends=True)
    (folder / "access.log.2.gz").write_bytes(gzip.compress(b"".join(lines[:700])))
    (folder / "rest.log").write_bytes(b"a greeting\n" + b"".join(lines[700:]))
    argv = (str(folder / "access.log.2.gz"), str(folder / "rest.log"), "--curves", str(folder / "curves.yaml"))
    said = _said(capsys, *argv, "--policy", "overflow:2")
    assert f"{COUNT} requests" in said
    assert f"1 of {COUNT + 1} lines tell of no request: 1 no JSON" in said


def test_every_line_that_is_no_request_is_told_so_that_the_numbers_add_up(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    seen = b"".join(
        b'{"event":"engine_seen","role":"%s","max_running_requests":16}\n' % role.encode() for role in ROLES
    )
    refused = line(FACTS._replace(status=400), 9.0)
    (folder / "mixed.log").write_bytes(seen + b"\n" + refused + (folder / "access.log").read_bytes())
    said = _said(
        capsys, str(folder / "mixed.log"), "--curves", str(folder / "curves.yaml"), "--policy", "pinned:baseline"
    )
    assert f"{COUNT} requests over" in said
    assert f"1 of {COUNT + 1} requests left out: 1 answered with an error" in said
    assert f"3 of {COUNT + 4} lines tell of no request: 2 other events, 1 blank" in said


def test_a_log_that_is_too_short_is_refused_before_anything_slow_is_loaded(folder: Path) -> None:
    lines = (folder / "access.log").read_bytes().splitlines(keepends=True)
    (folder / "short.log").write_bytes(b"".join(lines[:88]))
    command = (
        "import sys; from proxy.__main__ import main; "
        "code = main(sys.argv[1:]); sys.exit(code + 2 * ('scipy' in sys.modules))"
    )
    ended = ran("-c", command, "replay", str(folder / "short.log"), "--curves", str(folder / "curves.yaml"))
    assert (ended.returncode, "has 88 requests that ran, and at least 200 are needed" in ended.stderr) == (1, True), (
        ended
    )


def test_a_log_without_intervals_has_no_column_that_promises_some_and_one_with_them_has(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    lines = (folder / "access.log").read_bytes().splitlines(keepends=True)
    (folder / "brief.log").write_bytes(b"".join(lines[:260]))
    argv = ("--curves", str(folder / "curves.yaml"), "--policy", "overflow:2")
    brief, long = (_said(capsys, str(folder / name), *argv) for name in ("brief.log", "access.log"))
    assert "Not known: the log is too short" in brief
    assert ("against as it is" in brief, "(95 %)" in brief) == (True, False)
    assert "against as it is (95 %)" in long


def test_a_number_is_looked_for_where_none_is_given(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    argv = (str(folder / "access.log"), "--curves", str(folder / "curves.yaml"), "--policy", "overflow")
    found = _json(capsys, folder, *argv)
    rows = found["rows"]
    assert isinstance(rows, list)
    now, best = rows
    assert 1 <= best["routing"]["leave_at"] < 12
    assert best["mean_e2e_s"] < now["mean_e2e_s"]


def test_another_pace_has_as_many_requests_in_less_time_and_nothing_to_check_with(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    argv = (str(folder / "access.log"), "--curves", str(folder / "curves.yaml"), "--policy", "overflow:2")
    now, twice = (_json(capsys, folder, *argv, "--pace", pace) for pace in ("1", "2"))
    assert now["requests"] == twice["requests"]
    assert now["check"] is not None
    assert twice["check"] is None
    rows, faster = now["rows"], twice["rows"]
    assert isinstance(rows, list)
    assert isinstance(faster, list)
    assert faster[0]["mean_e2e_s"] > 1.2 * rows[0]["mean_e2e_s"]


FALLING = CURVES.replace("{in_flight: 16, tok_s: 400}", "{in_flight: 16, tok_s: 0.001}")


def test_what_more_came_for_than_it_carries_is_told_as_overload_and_compared_with_nothing(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "falling.yaml").write_text(FALLING)
    argv = (
        str(folder / "access.log"),
        "--curves",
        str(folder / "falling.yaml"),
        "--policy",
        "overflow:2,pinned:speculative",
    )
    found = _json(capsys, folder, *argv)
    rows = found["rows"]
    assert isinstance(rows, list)
    assert [row["difference"] for row in rows] == [None] * 3
    assert [row["overload"] is None for row in rows] == [False, True, False]
    said = _said(capsys, *argv)
    for row in (rows[0], rows[2]):
        told = f"{row['way']}: {row['overload']['left_open']} of {COUNT} requests were open when the last one came"
        assert told in said
    assert "Overflow with leave_at 2 carries it" in said
    alone = (*argv[:3], "--policy", "pinned:speculative", "--pace", "4")
    assert main(["replay", *alone]) == 1
    assert "No policy that was tried carries it either" in capsys.readouterr().out


def test_curves_of_another_box_are_found_out(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "faster.yaml").write_text(CURVES.replace("tok_s: ", "tok_s: 9"))
    said = _said(capsys, str(folder / "access.log"), "--curves", str(folder / "faster.yaml"), *FEW)
    assert "WARNING: outside 0.8 to 1.25" in said
    assert "Do not decide by this" in said
    assert "routing:\n" not in said


def test_with_another_configuration_what_was_in_force_is_still_what_is_checked(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    file = folder / "other.yaml"
    file.write_text(f"{BACKENDS}routing: {{policy: auto, curves_file: curves.yaml}}\n")
    found = _json(capsys, folder, str(folder / "access.log"), str(file), "--policy", "overflow:2")
    check, rows = found["check"], found["rows"]
    assert isinstance(check, dict)
    assert isinstance(rows, list)
    assert check["in_force"] == "overflow:12"
    assert check["ratio"] == pytest.approx(1.0, abs=0.02)
    assert rows[0]["way"] == "as it is: auto (marginal)"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "azure.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens\n"
            + "".join(f"2023-11-16 18:{n // 60:02}:{n % 60:02}.0000000,400,50\n" for n in range(600)),
        ),
        (
            "mooncake.jsonl",
            "".join(
                json.dumps({"timestamp": 1000 * n, "input_length": 600, "output_length": 50, "hash_ids": [n % 5, n]})
                + "\n"
                for n in range(600)
            ),
        ),
    ],
)
def test_a_recorded_trace_is_replayed_at_its_own_pace_against_auto(
    capsys: pytest.CaptureFixture[str], folder: Path, name: str, text: str
) -> None:
    (folder / name).write_text(text)
    said = _said(capsys, str(folder / name), "--curves", str(folder / "curves.yaml"), *FEW)
    assert "600 requests over 599 s, 1.00 a second" in said
    assert "as it is: auto (marginal)" in said
    assert "check:" not in said


def test_a_shipped_curve_serves_for_a_first_look(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    argv = (str(folder / "access.log"), "--curve", "rtx6kpro_glm51_dcp4_ctx16384", "--policy", "overflow:2")
    assert "of a box like yours, not of yours" in _said(capsys, *argv)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("access.log",), "no file of measured speeds is given; mend: measure with `crossover calibrate`"),
        (("access.log", "plain.yaml"), "is named by routing.curves_file of "),
        (("access.log", "--curves", "nowhere"), "no curve called"),
        (("access.log", "--curves", "nowhere.yaml"), "names no regular file"),
        (("access.log", "--curves", "plain.yaml"), "mend: "),
        (("plain.yaml",), "no log stands before it; mend: "),
        (("curves.yaml", "plain.yaml", "--curves", "curves.yaml"), "none of 11 lines is an event"),
        (("access.log", "--curves", "curves.yaml", "--policy", "tides"), "no policy or control arm is called 'tides'"),
        (("access.log", "--curves", "half.yaml"), "no context has the speeds of both backends; mend: "),
        (("access.log", "--curves", "curves.yaml", "--json", "no/where.json", *FEW), "cannot be written"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_mend(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "plain.yaml").write_text(BACKENDS)
    (folder / "half.yaml").write_text("".join(row for row in CURVES.splitlines(True) if "    baseline: " not in row))
    assert said in _refused(capsys, *argv)


@pytest.mark.parametrize(
    "argv", [("--jobs", "0"), ("--pace", "-1"), ("--context", "long"), ("--placement", "both"), ("--resamples", "x")]
)
def test_numbers_out_of_range_are_bad_usage(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["replay", "access.log", *argv])
    assert caught.value.code == 2
    assert argv[0] in capsys.readouterr().err
