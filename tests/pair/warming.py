"""Warming up: kernels that are compiled at their first use, and files that are read at theirs, are in no figure."""

import asyncio
from collections.abc import Sequence

from proxy.lab.loadcall import Shape, Target, call, open_session
from proxy.lab.prompts import PromptKind, choose

# Enough steps for a batch to be whole for some of them.
_TOKENS = 24
# A first answer may wait for kernels to be compiled.
_WITHIN_S = 180.0


def warm(url: str, model: str, concurrency: Sequence[int], prompts: PromptKind) -> int:
    """Have an engine run every batch once; how many requests failed."""
    return asyncio.run(_warm(url, model, concurrency, prompts))


async def _warm(url: str, model: str, concurrency: Sequence[int], prompts: PromptKind) -> int:
    shape, target, failed = Shape(_TOKENS, timeout_s=_WITHIN_S, more={"ignore_eos": True}), Target(url, model), 0
    async with open_session() as session:
        for size in concurrency:
            sent = [call(session, target, shape, choose(prompts, 0, index)) for index in range(size)]
            failed += sum(sample.error is not None for sample in await asyncio.gather(*sent))
    return failed
