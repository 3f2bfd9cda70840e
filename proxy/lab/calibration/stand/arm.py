"""One arm as the stand holds it: its connections, what was learned of its engine, and its prompts.

Measuring a cell on it is in cell_run.py, reading the engine's load in engine_word.py.
"""

import asyncio
from collections.abc import Callable
from itertools import count

import aiohttp

from proxy.lab.calibration.stand.engine_word import ArmTarget, EngineWord
from proxy.lab.calibration.stand.questions import (
    CHARS_PER_TOKEN,
    MATERIALS,
    PROMPTS,
    characters,
    probe,
    question,
    unknown,
)
from proxy.lab.calibration.values import Arm, Condition, Ending, FirstToken, Prefix
from proxy.lab.loadcall import Clock, Shape, Target, call
from proxy.lab.loadreport import Sample
from proxy.lab.prompts import Message, PromptKind
from proxy.protocol.allowlist import EngineKind

# A chat template's own words weigh a per cent in the longest probe, which is within every model's context. Others are
# as long as a few of the prompts that they are for: on a processor a thousand tokens take a minute to read.
_MAX_PROBE_TOKENS = 1500
_PROBED_PROMPTS = 4

# Characters that a token of text has in any vocabulary: from two tokens a character (bytes, of scripts that it does not
# know) to long words and runs of spaces. What is told beyond is no count of the tokens of a whole prompt.
_LEAST_CHARS, _MOST_CHARS = 0.5, 20.0

# A first answer may wait for kernels to be compiled; an engine that takes longer than this is not going to be quick.
_PROBE_WITHIN_S = 120.0

# A prompt of the longest contexts takes some ten seconds of prefill; eight at once wait for each other.
_WARM_WITHIN_S = 300.0

# A prompt asked alone that takes longer than this to its first token is none that a policy should place by.
_PREFILL_WITHIN_S = 60.0

# With more of the KV pool in use than this, what no sequence holds may have been thrown out of the prefix cache.
_CROWDED_KV = 0.5

# The longest answers on a slow and crowded engine take many minutes; a cell ends them when its window is over.
_ANSWER_WITHIN_S = 3600.0

# An engine that still has something to do after this has other clients.
_IDLE_WITHIN_S = 10.0

# Between looks at an engine that is to become idle.
_IDLE_LOOK_S = 0.1


class ArmDesk:
    """One engine under measurement. `model` is the name to ask for; `facts` sets it where none was given. `on_doubt` is
    told, in a sentence, what the engine says that cannot be, and what is assumed in its place."""

    def __init__(
        self,
        arm: Arm,
        target: ArmTarget,
        session: aiohttp.ClientSession,
        *,
        nonce: str,
        clock: Clock,
        on_doubt: Callable[[str], None],
    ) -> None:
        self.arm = arm
        self.engine = target.engine
        self.session = session
        self.word = EngineWord(session, target)
        self.target = Target(target.url, target.model or "", target.api_key)
        self.clock = clock
        self._nonce = nonce
        self._on_doubt = on_doubt
        self._probes = count()
        self._cold = count()
        self._alone = count()
        self._chars_per_token: dict[PromptKind, float] = {}
        self._continuous = True
        self._warmed: Condition | None = None

    def name_model(self, model: str) -> None:
        """Ask for this model from now on."""
        self.target = Target(self.target.url, model, self.target.api_key)

    def asking(self, condition: Condition) -> Callable[[], list[Message]]:
        """What gives the messages of one request after another of a cell."""
        chars = self._chars_per_token.get(condition.prompts, CHARS_PER_TOKEN)
        if condition.prefix is Prefix.WARM:
            warm = count()
            return lambda: question(condition, next(warm), chars)
        return lambda: question(condition, next(self._cold), chars, self._nonce)

    def shape(self, condition: Condition, max_tokens: int) -> Shape:
        """What a request asks for besides its messages.

        No temperature: it is what the model's makers or the operator set, as for their clients. At zero all requests of
        one prompt would be one text, and experts and drafts would look better shared than they are.
        """
        more: dict[str, object] = {}
        if condition.ending is Ending.FIXED:
            more["ignore_eos"] = True
            if self.engine is EngineKind.VLLM:
                more["min_tokens"] = max_tokens
        if self.engine is EngineKind.LLAMACPP and self._continuous:
            more["timings_per_token"] = True  # its way of telling the count in every chunk
        return Shape(max_tokens, timeout_s=_ANSWER_WITHIN_S, continuous_usage=self._continuous, more=more)

    async def learn(self, condition: Condition) -> bool:
        """Learn once for each kind of prompts how long a token is, and whether counts come in every chunk. Awaits.

        False where the engine failed; it is left to fail in the cell, where failures are counted.
        """
        if condition.prompts in self._chars_per_token:
            return True
        tokens = min(_MAX_PROBE_TOKENS, _PROBED_PROMPTS * condition.context_tokens)
        messages = probe(condition.prompts, tokens, next(self._probes), self._nonce)
        sample = await self._send_one(condition, messages, _PROBE_WITHIN_S)
        if sample.error in ("status 400", "status 422") and self._continuous:
            self._continuous = False
            sample = await self._send_one(condition, messages, _PROBE_WITHIN_S)
            self._continuous = sample.error is not None
        if sample.error is None and sample.prompt_tokens is not None:
            self._chars_per_token[condition.prompts] = self._chars_told(messages, sample.prompt_tokens)
        return sample.error is None

    def _chars_told(self, messages: list[Message], prompt_tokens: int) -> float:
        """The characters of a token by what the engine counted; what is usual where that is no count."""
        chars = characters(messages)
        if _is_count(chars, prompt_tokens):
            return chars / prompt_tokens
        self._on_doubt(
            f"the {self.arm} engine at {self.target.url} tells {prompt_tokens:,} prompt tokens (usage.prompt_tokens) "
            f"for a prompt of {chars:,} characters that it had not seen before, which is no count of it; "
            f"{CHARS_PER_TOKEN:g} characters a token are assumed, so contexts may be longer or shorter than they are "
            "called; mend: have the engine count whole prompts"
        )
        return CHARS_PER_TOKEN

    async def warm(self, condition: Condition) -> None:
        """Have the engine's prefix cache know every prompt of a warm cell. Awaits; failures show in the cell."""
        if self._warmed == condition:
            return
        ask = self.asking(condition)
        prompts = [ask() for _ in range(PROMPTS)]
        # Those that share a text come after the one that brings it.
        for some in (prompts[:MATERIALS], prompts[MATERIALS:]):
            sent = await asyncio.gather(*(self._send_one(condition, one, _WARM_WITHIN_S) for one in some))
            if all(sample.error is not None for sample in sent):
                return
        self._warmed = condition

    async def first_token(self, condition: Condition, prompt_tokens: int) -> FirstToken | None:
        """Ask one prompt of about so many tokens that begins like no other, for one token; None where the engine is not
        idle, fails, or shows no first token. Awaits."""
        if not await self.learn(condition) or await self.until_idle(_IDLE_WITHIN_S):
            return None
        chars = round(prompt_tokens * self._chars_per_token.get(condition.prompts, CHARS_PER_TOKEN))
        messages = unknown(condition.prompts, next(self._alone), chars, self._nonce)
        sample = await self._send_one(condition, messages, _PREFILL_WITHIN_S)
        if sample.error is not None or sample.first_at_s is None or sample.prompt_tokens is None:
            return None
        if not _is_count(characters(messages), sample.prompt_tokens):
            return None  # a time for nobody knows how many tokens
        return FirstToken(sample.prompt_tokens - (sample.cached_tokens or 0), sample.first_at_s - sample.sent_at_s)

    def note(self, condition: Condition, kv_use: float | None) -> None:
        """A cell of this condition has run: what the prefix cache knew before may be gone."""
        if condition != self._warmed or (kv_use or 0.0) > _CROWDED_KV:
            self._warmed = None

    async def until_idle(self, within_s: float) -> int:
        """Wait until the engine has nothing to do; how many sequences it still has after `within_s`, 0 if not told."""
        ends_at_s = self.clock() + within_s
        while True:
            reading = await self.word.read()
            left = 0 if reading is None else reading.sequences
            if left == 0 or self.clock() >= ends_at_s:
                return left
            await asyncio.sleep(_IDLE_LOOK_S)

    async def _send_one(self, condition: Condition, messages: list[Message], within_s: float) -> Sample:
        shape = self.shape(condition, 1)
        limited = Shape(1, timeout_s=within_s, continuous_usage=shape.continuous_usage, more=shape.more)
        return await call(self.session, self.target, limited, messages, clock=self.clock)


def _is_count(chars: int, tokens: int) -> bool:
    """Whether a text of so many characters can be so many tokens."""
    return chars / _MOST_CHARS <= tokens <= chars / _LEAST_CHARS
