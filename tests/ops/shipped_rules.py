"""The shipped rules as a test reads them."""

from functools import cache
from typing import Any

import yaml
from fakes.scraped import ROOT

FOLDER = ROOT / "config" / "prometheus"
RULES = (FOLDER / "crossover.rules.yml", FOLDER / "crossover.alerts.yml")


@cache
def rules() -> list[dict[str, Any]]:
    """Those that record and those that alert."""
    files = [yaml.safe_load(path.read_text()) for path in RULES]
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    """Those that alert."""
    return [rule for rule in rules() if "alert" in rule]
