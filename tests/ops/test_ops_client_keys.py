"""The commands of docs/operations.md for client keys leave a file that the proxy's own user can still read."""

import re
import subprocess
from pathlib import Path

from fakes.scraped import ROOT

from proxy.protocol.client_keys import line_for

PAGE = (ROOT / "docs" / "operations.md").read_text()
SECTION = PAGE.partition("## Client keys")[2].partition("\n## ")[0]


def command(word: str) -> str:
    """The one command of the section in which a word stands, as it is copied from there."""
    (found,) = [line.strip() for line in SECTION.splitlines() if line.startswith("    ") and word in line]
    return found


def shell(folder: Path, *lines: str) -> str:
    script = "\n".join(lines)
    return subprocess.run(["sh", "-ec", script], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_revoking_a_key_leaves_the_file_its_owner_and_mode(tmp_path: Path) -> None:
    """By `mv` it became the operator's alone, could not be read, and the revoked key was accepted on and on."""
    keys = tmp_path / "clients.keys"
    lines = [line_for(name, f"the key of {name}") for name in ("team-a", "team-a-2", "team-b")]
    keys.write_text("".join(f"{line}\n" for line in lines))
    keys.chmod(0o640)
    before = keys.stat()
    mask = shell(tmp_path, "umask 022", command("grep -v '^team-a '"), "umask")
    after = keys.stat()
    assert keys.read_text().splitlines() == lines[1:], "of one client alone"
    assert (after.st_ino, after.st_mode, after.st_uid, after.st_gid) == (
        before.st_ino,
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )
    assert [each.name for each in tmp_path.iterdir()] == ["clients.keys"]
    assert mask.strip() == "0022", "what the operator makes next is as it always was"


def test_making_a_key_adds_a_line_and_keeps_the_key_from_others(tmp_path: Path) -> None:
    maker = tmp_path / "crossover"
    maker.write_text("#!/bin/sh\nprintf 'crossover_secret\\nteam-a the-line\\n'\n")
    maker.chmod(0o755)
    made = tmp_path / "made"
    made.mkdir()
    mask = shell(made, "umask 022", f"PATH={tmp_path}:$PATH", command("crossover key team-a |"), "umask")
    assert (made / "team-a.key").read_text() == "crossover_secret\n"
    assert (made / "clients.keys").read_text() == "team-a the-line\n"
    assert [each.stat().st_mode & 0o777 for each in made.iterdir()] == [0o600, 0o600]
    assert mask.strip() == "0022"


def test_the_lines_to_look_for_after_a_change_are_lines_of_the_log() -> None:
    (events,) = re.findall(r"config_\((\w+)\|(\w+)\)", command("journalctl"))
    told = (ROOT / "docs" / "logs.md").read_text()
    assert all(f"[`config_{event}`]" in told for event in events)
