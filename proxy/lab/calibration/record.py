"""The folder of a calibration: what was asked for, and every cell as it came. A run that was cut goes on from here.

What is written at the end, for people, is in report/.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from proxy.errors import ConfigError
from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.values import Arm, ArmFacts, Cell, Measurement, Prefill
from proxy.lab.loadreport import Sample

RUN_FILE = "run.json"
CELLS_FILE = "measurements.jsonl"
REQUESTS_FILE = "requests.jsonl"
RESULT_FILES = ("report.html", "report.md", "curves.yaml", "proposal.yaml", "proposal.diff")
"""What a calibration writes at its end, over what is there."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a folder was begun with, how long it took until now, how fast its arms took prompts in, and whether it came
    to its end."""

    aim: Aim
    facts: Mapping[Arm, ArmFacts]
    began_at: str
    spent_s: float = 0.0
    prefills: tuple[Prefill, ...] = ()
    finished: bool = False


# Of a run's file, and of a cell's line: they have some KiB. What is larger is cut, so that it is none.
_MAX_BYTES = 1 << 20

_RUN = TypeAdapter(Run)
_MEASUREMENT = TypeAdapter(Measurement)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn what a disk refuses into a ConfigError that names the mend."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"--out {folder}: {error.strerror}; name a folder that can be written, or make room: the same command goes"
            " on with the cells that are kept"
        ) from error


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Have a folder for this process, made if need be, until the end. Raises ConfigError where another one has it."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ConfigError(
            f"another calibration is writing to {folder}; wait until it ends, or name another folder by --out"
        ) from error
    finally:
        os.close(place)


class Record:
    """One folder, opened to go on with it; with `again` its cells are not read, as they will be forgotten. Raises
    ConfigError, which names the file and the mend.

    A folder that holds files by its names and no run is somebody else's, and is left as it is.
    """

    def __init__(self, folder: Path, *, again: bool = False) -> None:
        self.folder = folder
        self.run: Run | None = None
        self.measurements: list[Measurement] = []
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._read()
            if not again:
                self._read_cells(self.folder / CELLS_FILE)

    def forget(self) -> None:
        """Remove what an earlier run left here, but for what it was asked for: that `begin` replaces."""
        with writing(self.folder):
            for name in (CELLS_FILE, REQUESTS_FILE):
                (self.folder / name).unlink(missing_ok=True)
        self.run, self.measurements = None, []

    def begin(self, run: Run) -> None:
        """Write down what is being measured; cells that are here already go on being part of it."""
        self.note(run)

    def note(self, run: Run) -> None:
        """Replace what is known of the run, in one step."""
        self.run = run
        waiting = self.folder / f".{RUN_FILE}"
        with writing(self.folder):
            waiting.write_bytes(orjson.dumps(_plain(run), option=orjson.OPT_INDENT_2))
            waiting.replace(self.folder / RUN_FILE)

    def add(self, measurement: Measurement) -> None:
        """Keep one cell; it is on the disk when this returns."""
        with writing(self.folder), (self.folder / CELLS_FILE).open("ab") as file:
            file.write(orjson.dumps(_plain(measurement)) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def add_request(self, cell: Cell, sample: Sample) -> None:
        """Keep one request; buffered by the system, since losing some of them loses no verdict."""
        line = _plain(cell.condition) | {"concurrency": cell.concurrency, "arm": cell.arm, "repeat": cell.repeat}
        with writing(self.folder), (self.folder / REQUESTS_FILE).open("ab") as file:
            file.write(orjson.dumps(line | asdict(sample)) + b"\n")

    def _read(self) -> None:
        begun = self.folder / RUN_FILE
        if not begun.exists():
            self._refuse_strangers()
            return
        try:
            with begun.open("rb") as file:
                self.run = _RUN.validate_json(file.read(_MAX_BYTES + 1))
        except ValidationError as error:
            raise ConfigError(f"{begun}: not a calibration's; name another folder by --out") from error

    def _refuse_strangers(self) -> None:
        there = [name for name in (CELLS_FILE, REQUESTS_FILE, *RESULT_FILES) if (self.folder / name).exists()]
        if there:
            raise ConfigError(
                f"{self.folder} holds a {there[0]} that is no calibration's, as there is no {RUN_FILE}; name another"
                " folder by --out"
            )

    def _read_cells(self, file: Path) -> None:
        if not file.exists():
            return
        with file.open("rb") as lines:
            whole_bytes = 0
            for number, line in enumerate(iter(lambda: lines.readline(_MAX_BYTES + 1), b""), start=1):
                if not line.endswith(b"\n") and len(line) <= _MAX_BYTES:
                    # A process that was killed as it wrote: what it measured last is measured again.
                    os.truncate(file, whole_bytes)
                    return
                try:
                    self.measurements.append(_MEASUREMENT.validate_json(line))
                except ValidationError as error:
                    raise ConfigError(
                        f"{file}:{number}: not a measurement; remove that line, or begin anew with --again"
                    ) from error
                whole_bytes += len(line)


def _plain(value: object) -> Any:
    """A value of values.py as JSON's own: dataclasses and named tuples by the names of their fields."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(one) for name, one in value._asdict().items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
