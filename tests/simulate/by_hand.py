"""Pages of figures that end with what is written by hand."""

from pathlib import Path

# From this line on a page is written by hand, and stays when its tables are made anew.
BY_HAND = "## Where a gate fails: why"


def write(page: Path, text: str) -> None:
    """The page anew, with what of it is by hand."""
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    at = before.find(BY_HAND)
    page.write_text(text if at < 0 else f"{text}\n{before[at:]}", encoding="utf-8")
