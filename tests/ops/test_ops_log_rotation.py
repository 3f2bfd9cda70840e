"""The log goes to standard output, and is rotated as docs/logs.md says without an odd byte."""

import asyncio
import re
import sys
from pathlib import Path

import orjson
from fakes.scraped import ROOT
from fakes.until import until

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Logs a line for each that it reads, until there is none.
WRITER = """
import sys
from proxy import logs
logger = logs.configure("json", "info")
with logs.written_aside():
    for line in sys.stdin:
        logger.info("started", version=line.strip())
"""


def redirection() -> str:
    """How docs/logs.md sends the log to a file."""
    (found,) = re.findall(r"crossover serve crossover\.yaml (>+) /var/log", (ROOT / "docs" / "logs.md").read_text())
    return str(found)


async def test_a_log_that_is_copied_and_emptied_goes_on_at_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    shell = f'exec "$@" {redirection()} access.log'
    writer = await asyncio.create_subprocess_exec(
        *("sh", "-c", shell, "sh", sys.executable, "-c", WRITER),
        cwd=tmp_path,
        stdin=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert writer.stdin is not None
    writer.stdin.write(b"before\n")
    await until(lambda: log.exists() and log.read_bytes().endswith(b"\n"), what="the first line")
    with log.open("r+b") as file:
        file.truncate()
    await writer.communicate(b"after\n")
    assert writer.returncode == 0
    assert [orjson.loads(line)["version"] for line in log.read_bytes().splitlines()] == ["after"]


def test_every_page_appends_to_the_log() -> None:
    told = [(page.name, line) for page in PAGES for line in page.read_text().splitlines() if "access.log" in line]
    assert len(told) > 5
    assert [each for each in told if re.search(r"(?<!>)> ?\S*access\.log", each[1])] == []
