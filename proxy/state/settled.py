"""What the latest requests ended with, by their ids, so that an operator can ask what became of one.

Where each was sent and why is in the desk's ring of decisions; the words for both are in telling/.
"""

from collections import OrderedDict
from itertools import islice
from typing import NamedTuple

from proxy.model import RequestFacts

MAX_REMEMBERED = 5000
"""Decisions and ends of requests that are remembered, as many of the one as of the other, so that what is shown can be
told to its end: half a minute at ten thousand a minute, hours at a few. About three megabytes of decisions and five of
ends."""


class Settlement(NamedTuple):
    """One request that has ended, and when: `at_s` is monotonic seconds. The hashes of its prompt are not kept."""

    at_s: float
    facts: RequestFacts


class Settled:
    """The last MAX_REMEMBERED requests that have ended. Of several with one id, which clients may choose, the last."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, Settlement] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def keep(self, at_s: float, facts: RequestFacts) -> None:
        """Remember one, in the place of the oldest."""
        by_id, request_id = self._by_id, facts.request_id
        if facts.traits.prefix:  # of a long prompt they are ten times as much as all the rest
            facts = facts._replace(traits=facts.traits._replace(prefix=()))
        by_id[request_id] = Settlement(at_s, facts)
        by_id.move_to_end(request_id)
        if len(by_id) > MAX_REMEMBERED:
            by_id.popitem(last=False)

    def of(self, request_id: str) -> Settlement | None:
        """What a request ended with; None where it still runs, is forgotten, or never was."""
        return self._by_id.get(request_id)

    def failed(self, limit: int) -> list[Settlement]:
        """The latest that ended in an error of the proxy's or an engine's, newest first; who left an engine that gave
        no sign of life any more was failed by it as well."""
        return list(islice((one for one in reversed(self._by_id.values()) if _failed(one.facts)), limit))


def _failed(facts: RequestFacts) -> bool:
    return facts.failure is not None or facts.silent_s is not None
