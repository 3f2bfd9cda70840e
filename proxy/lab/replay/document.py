"""A replay as one JSON document. The same in words is in report.py."""

from dataclasses import asdict, fields
from typing import Any

import orjson

from proxy import __version__
from proxy.lab.replay.reading import Account
from proxy.lab.replay.report import Check, Replayed, Row


def as_json(found: Replayed) -> bytes:
    """The whole as one document; durations in seconds, shares from 0 to 1, a difference of -0.2 is a fifth less."""
    traffic, account, check, advice = found.traffic, found.account, found.check, found.advice
    made = {
        "made_by": f"crossover {__version__} replay",
        "source": found.source,
        "requests": len(traffic.requests),
        "counted": len(traffic.counted),
        "began_at_s": traffic.began_at_s,
        "pace": traffic.pace,
        "means": asdict(traffic.means),
        "account": None if account is None else _worded(account),
        "engines": found.engines,
        "check": None if check is None else _check_plain(check),
        "blocks": {"count": found.blocks, "length_s": found.block_s},
        "rows": [_row_plain(row) for row in found.rows],
        "advice": {
            "kind": advice.kind,
            "sentences": advice.sentences,
            "way": None if advice.chosen is None else found.rows[advice.chosen].name,
            "routing": advice.routing,
        },
    }
    return orjson.dumps(made, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _worded(account: Account) -> dict[str, Any]:
    """Its fields, with plain words for the keys of those that have some."""
    found = {field.name: getattr(account, field.name) for field in fields(account)}
    return {
        name: {str(key): count for key, count in value.items()} if isinstance(value, dict) else value
        for name, value in found.items()
    }


def _check_plain(check: Check) -> dict[str, Any]:
    return {
        "in_force": check.in_force,
        "ratio": check.ratio,
        "measured": check.measured,
        "simulated": check.simulated._asdict(),
        "as_recorded": check.recorded._asdict(),
    }


def _row_plain(row: Row) -> dict[str, Any]:
    share, low, high = row.difference
    return {
        "way": row.name,
        **row.tally._asdict(),
        "difference": share,
        "difference_ci95": [low, high],
        "routing": row.routing,
        "overload": None if row.overload is None else row.overload._asdict(),
    }
