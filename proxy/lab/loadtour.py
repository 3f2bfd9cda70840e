"""All arms of one load: the proxy's own choice first and, to compare, each backend alone by request header.

The arms follow one another instead of taking turns at each level: requests that ask for a backend are in flight too,
and would move the very count that the proxy's own choice hangs on. One walk is in lab/loadwalk.py.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import aiohttp

from proxy.lab.loadcall import Target, call
from proxy.lab.loadreport import Level, LevelSpec, Report, Sample, compare
from proxy.lab.loadtable import level_name
from proxy.lab.loadwalk import Progress, Recipe, Walk
from proxy.lab.prompts import choose
from proxy.model import ROLES, Role

# What to do about the error that most requests of a hopeless load ended in.
_MENDS = {
    "unreachable": "is the proxy up? start it with `crossover serve`, or name its address: `crossover load URL`",
    "status 401": "give the key by --api-key or CROSSOVER_API_KEY",
    "status 404": "is the URL that of an OpenAI-compatible server, and --model one of its /v1/models?",
    "status 429": "the server refuses the load: ask for less concurrency or a lower rate",
    "status 503": "no backend takes requests: see `crossover status`",
    "timeout": "raise --timeout-s, or ask for fewer tokens by --max-tokens",
}
_OTHER_MEND = "see the proxy's log and `crossover status`"

# With request lengths as varied as chats have, the mean over this many is good to some ten per cent, and below it p99
# is no quantile at all.
FEW_REQUESTS = 30


class Tour:
    """The arms of one load and what they have measured so far, whether or not they came to their end."""

    def __init__(
        self, session: aiohttp.ClientSession, target: Target, recipe: Recipe, specs: Sequence[LevelSpec]
    ) -> None:
        self._session = session
        self._target = target
        self._recipe = recipe
        self._specs = specs
        self._walks: dict[Role | None, Walk] = {}
        self._notes: list[str] = []

    async def go(self, *, comparing: bool) -> None:
        """Walk the arms. Awaits; when it is cancelled the report holds what was measured until then."""
        await self._walk(None, self._specs)
        if not comparing or explain_failure(self._walks[None].levels()) is not None:
            return
        once = tuple(dict.fromkeys(self._specs))
        for role in ROLES:
            refusal = await self._refusal(role)
            if refusal is None:
                await self._walk(role, once)
            else:
                self._notes.append(f"only {role} was not measured: {refusal}")

    def progress(self) -> Progress | None:
        """Where the newest arm stands; None before the first."""
        return next(reversed(self._walks.values())).progress() if self._walks else None

    def report(self, config: Mapping[str, object], *, interrupted: bool) -> Report:
        """Everything measured so far."""
        levels = {asked: walk.levels() for asked, walk in self._walks.items()}
        own = levels.pop(None, ())
        only = tuple(level for arm in levels.values() for level in arm)
        notes = [*self._notes, *_remarks((*own, *only))]
        if interrupted:
            notes.append("stopped early: the requests that were in flight then are in no figure")
        return Report(
            config=config,
            levels=own,
            only=only,
            notes=tuple(dict.fromkeys(notes)),
            interrupted=interrupted,
            comparisons=compare(own, only) if only else (),
        )

    async def _walk(self, asked: Role | None, specs: Sequence[LevelSpec]) -> None:
        self._walks[asked] = Walk(self._session, self._target, replace(self._recipe, asked=asked))
        await self._walks[asked].over(specs)

    async def _refusal(self, role: Role) -> str | None:
        """Why the server would not serve from the backend asked for, found by one request; None when it would."""
        shape = replace(self._recipe.shape, max_tokens=1, n=1)
        messages = choose(self._recipe.prompts, self._recipe.seed, 0, self._recipe.nonce)
        return _explain_refusal(role, await call(self._session, self._target, shape, messages, asked=role))


def _explain_refusal(role: Role, sample: Sample) -> str | None:
    if sample.backend == role:
        return None
    if sample.backend is not None:
        return (
            f"the answer to a request that asked for it came from {sample.backend}; set `routing.allow_header: true` "
            f"in the proxy's configuration, and see that {role} is up"
        )
    if sample.error is not None:
        return f"a request that asked for it failed ({sample.error})"
    return "the answers carry no x-crossover-backend header; is this a Crossover proxy?"


def explain_failure(levels: Sequence[Level]) -> str | None:
    """What to do when not one request succeeded; None when one did, or none has ended."""
    errors: Counter[str] = Counter()
    for level in levels:
        errors.update(level.errors)
    if not errors or any(level.requests for level in levels):
        return None
    ((name, count),) = errors.most_common(1)
    return f"no request succeeded ({count} x {name}): {_MENDS.get(name, _OTHER_MEND)}"


def _remarks(levels: Sequence[Level]) -> Iterator[str]:
    """What a reader must know before trusting the figures."""
    for level in levels:
        name = _arm_name(level)
        if level.without_usage:
            yield f"{name}: {level.without_usage} answers told no usage, so tok/s is not known; chunks are not tokens"
        if not level.requests and not level.errors:
            yield f"{name}: no request ended within the window; lengthen --duration or lower --max-tokens"
        if level.requests and not level.pure:
            yield (
                f"{name}: only {level.honoured or 0:.0%} of the answers came from the backend asked for; the level is "
                "left out of the comparison"
            )
    if any(0 < level.requests < FEW_REQUESTS for level in levels):
        yield (
            f"levels with fewer than {FEW_REQUESTS} requests are rough: some per cent are noise and p99 is "
            "the slowest of a few; lengthen --duration before you believe them"
        )
    if any(level.requests and not level.shares for level in levels):
        yield "answers carry no x-crossover-backend header, so the shares of the backends are not known"


def _arm_name(level: Level) -> str:
    name = level_name(level.spec)
    return name if level.asked is None else f"only {level.asked}, {name}"
