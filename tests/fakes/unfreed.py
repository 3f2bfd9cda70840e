"""What of the proxy holds itself: objects in rings of references, which only the garbage collector ever frees.

Not here: what nobody frees at all; counts of descriptors, tasks and bytes show that.
"""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Its errors are in rings of aiohttp's own making, a few for each question that finds no engine.
NOT_OURS = "/proxy/wire/control.py"


@contextmanager
def unfreed() -> Iterator[Counter[str]]:
    """Counts, once its block has ended, what of the proxy the block left to the collector: objects by their class and
    frames by their function. What begins within has to end within."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found.update(filter(None, map(_ours, gc.garbage)))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _ours(each: object) -> str | None:
    if isinstance(each, FrameType):
        path = each.f_code.co_filename
        return each.f_code.co_qualname if "/proxy/" in path and not path.endswith(NOT_OURS) else None
    kind = type(each)
    return kind.__qualname__ if str(kind.__module__).startswith("proxy.") else None
