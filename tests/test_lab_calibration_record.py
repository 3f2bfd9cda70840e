"""The folder of a run: what is kept survives a kill, and a run that was cut is read back as it was."""

from pathlib import Path

import orjson
import pytest
from fakes.cells import Bench, crossing_at, facts, measured

from proxy.errors import ConfigError
from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.record import CELLS_FILE, REQUESTS_FILE, RESULT_FILES, RUN_FILE, Record, Run, alone
from proxy.lab.calibration.values import Measurement, Quantiles
from proxy.lab.loadreport import Sample

RUN = Run(Aim(contexts=(1024, 8192)), facts(flags={"tp_size": "8"}), "2026-01-01T00:00:00Z")


def begun(folder: Path, count: int = 5) -> list[Measurement]:
    record = Record(folder)
    record.begin(RUN)
    kept = Bench(crossing_at(6.0)).carry_out(RUN.aim, at_most=count)
    for one in kept:
        record.add(one)
    return kept


def test_what_was_kept_is_read_back_equal(tmp_path: Path) -> None:
    kept = begun(tmp_path)
    found = Record(tmp_path)
    assert found.run == RUN
    assert found.measurements == kept


def test_every_field_of_a_measurement_is_kept(tmp_path: Path) -> None:
    cell = Bench(crossing_at(6.0)).carry_out(RUN.aim, at_most=1)[0].cell
    spread = Quantiles(1.0, 0.5, 0.9, 2.0, 3.0)
    full = measured(cell, 10.0, batch=3.5, tokens_per_step=2.2, accept_length=2.3, kv_use=0.5, cache_hit_rate=0.9,
                    prompt_tokens=900.0, ttft_s=spread, tpot_s=spread, request_tok_s=spread, chunk_gap_p99_s=0.1,
                    queued=True, disturbed=True, errors={"cut": 2}, client_cpu=0.4)  # fmt: skip
    record = Record(tmp_path)
    record.begin(RUN)
    record.add(full)
    assert Record(tmp_path).measurements == [full]


def test_a_line_that_a_kill_left_unfinished_is_dropped_and_the_next_begins_anew(tmp_path: Path) -> None:
    kept = begun(tmp_path)
    cells = tmp_path / CELLS_FILE
    cells.write_bytes(cells.read_bytes()[:-40])
    record = Record(tmp_path)
    assert record.measurements == kept[:-1]
    record.add(kept[-1])
    assert Record(tmp_path).measurements == kept


def test_a_broken_line_in_the_middle_is_refused_with_its_number(tmp_path: Path) -> None:
    begun(tmp_path)
    cells = tmp_path / CELLS_FILE
    lines = cells.read_bytes().splitlines()
    cells.write_bytes(b"\n".join([lines[0], b"{}", *lines[2:]]) + b"\n")
    with pytest.raises(ConfigError, match=rf"{CELLS_FILE}:2"):
        Record(tmp_path)


def test_a_line_or_a_run_longer_than_any_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    begun(tmp_path, count=1)
    cells, run = tmp_path / CELLS_FILE, tmp_path / RUN_FILE
    long = cells.read_bytes() + b"x" * (1 << 21)
    cells.write_bytes(long)
    with pytest.raises(ConfigError, match=r":\d: not a measurement"):
        Record(tmp_path)
    assert cells.read_bytes() == long
    run.write_bytes(run.read_bytes() + b"x" * (1 << 21))
    with pytest.raises(ConfigError, match="not a calibration's"):
        Record(tmp_path)


def test_another_programs_run_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / RUN_FILE).write_text('{"hello": 1}')
    with pytest.raises(ConfigError, match="--out"):
        Record(tmp_path)


def test_a_folder_that_cannot_be_made_is_named_with_the_mend(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file.*--out|--out.*file"):
        Record(tmp_path / "file")


def test_beginning_anew_forgets_the_old_cells(tmp_path: Path) -> None:
    begun(tmp_path)
    record = Record(tmp_path)
    record.forget()
    record.begin(RUN)
    assert Record(tmp_path).measurements == []


@pytest.mark.parametrize("name", [CELLS_FILE, REQUESTS_FILE, *RESULT_FILES])
@pytest.mark.parametrize("again", [False, True])
def test_a_folder_with_a_strangers_files_is_left_as_it_is(tmp_path: Path, name: str, again: bool) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(ConfigError, match="--out"):
        Record(tmp_path, again=again)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [(name, "mine")]


def test_cells_that_cannot_be_read_are_no_hindrance_to_beginning_anew(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / CELLS_FILE).write_bytes(b"{}\n")
    record = Record(tmp_path, again=True)
    record.forget()
    record.begin(RUN)
    assert Record(tmp_path).measurements == []


def test_a_run_that_ended_as_it_forgot_the_one_before_can_be_begun_again(tmp_path: Path) -> None:
    begun(tmp_path)
    Record(tmp_path, again=True).forget()
    assert Record(tmp_path).measurements == []


def test_a_folder_is_one_calibrations_at_a_time(tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(ConfigError, match="another calibration"), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass


@pytest.mark.parametrize("add", ["add", "note", "add_request"])
def test_a_disk_that_takes_no_more_is_told_with_the_mend(tmp_path: Path, add: str) -> None:
    record = Record(tmp_path)
    record.begin(RUN)
    (one,) = Bench(crossing_at(6.0)).carry_out(RUN.aim, at_most=1)[:1]
    given: dict[str, tuple[object, ...]] = {"add": (one,), "note": (RUN,), "add_request": (one.cell, Sample(1.0, 3.0))}
    for name in (CELLS_FILE, REQUESTS_FILE, f".{RUN_FILE}"):
        (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(ConfigError, match=r"--out .*No space left"):
        getattr(record, add)(*given[add])


def test_requests_are_lines_of_json_with_their_cell(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.begin(RUN)
    cell = Bench(crossing_at(6.0)).carry_out(RUN.aim, at_most=1)[0].cell
    record.add_request(cell, Sample(1.0, 3.0, first_at_s=1.5, last_at_s=2.9, completion_tokens=12))
    (line,) = (tmp_path / REQUESTS_FILE).read_bytes().splitlines()
    said = orjson.loads(line)
    assert (said["arm"], said["concurrency"], said["completion_tokens"]) == (cell.arm, cell.concurrency, 12)
    assert {name: said[name] for name in cell.condition._fields} == cell.condition._asdict()


def test_the_files_name_no_key(tmp_path: Path) -> None:
    begun(tmp_path)
    assert "key" not in orjson.loads((tmp_path / RUN_FILE).read_bytes())["facts"]["baseline"]
