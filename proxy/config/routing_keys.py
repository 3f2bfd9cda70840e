"""The section `routing` of the file: meaning, unit, default and range of its keys. Others are in settings.py."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from proxy.config.sections import MAX_SEQUENCES, FileName, Section, Word
from proxy.model import Policy, Role
from proxy.routing.policy import Affinity, Goals, RequestRule, RuleKind


class Rule(Section):
    """One kind of request that always goes to one role while that role is eligible, and waits when it is full.

    The first rule that matches holds."""

    when: Annotated[RuleKind, Word]
    """What the rule matches: output bound by a grammar or schema, a long prompt, or a request that names state in one
    engine (session_params, previous_response_id). The last kind goes where that state is; one of which the proxy does
    not know it is refused where no rule and no pin says where."""
    role: Annotated[Role, Word]
    """Where such requests go."""
    min_prompt_bytes: Annotated[int, Field(ge=1, le=1 << 34)] | None = None
    """Size of the request body from which a prompt counts as long; required with long_prompt and only there."""

    @model_validator(mode="after")
    def _size_belongs_to_long_prompt(self) -> Self:
        long = self.when is RuleKind.LONG_PROMPT
        if long and self.min_prompt_bytes is None:
            raise ValueError("long_prompt needs min_prompt_bytes; mend: add it, for example min_prompt_bytes: 65536")
        if not long and self.min_prompt_bytes is not None:
            raise ValueError(f"min_prompt_bytes has no meaning with {self.when}; mend: remove it")
        return self

    def request_rule(self) -> RequestRule:
        """The same for routing."""
        return RequestRule(self.when, self.role, self.min_prompt_bytes or 0)


class Slo(Section):
    """What an answer should not be slower than. Policy marginal only."""

    ttft_s: Annotated[float, Field(gt=0, le=3600)] | None = None
    """Time to the first token, from the prompt's length and the prefill that curves_file tells; null: any."""
    tpot_s: Annotated[float, Field(gt=0, le=60)] | None = None
    """Time for each further token, as predicted when a request is placed; null: any. Where a backend is predicted to be
    slower each second of lateness counts tenfold."""

    def goals(self) -> Goals | None:
        """The same for routing; None where nothing is asked for."""
        return None if self.ttft_s is None and self.tpot_s is None else Goals(self.ttft_s, self.tpot_s)


class Learn(Section):
    """Whether the speeds in curves_file are corrected by live traffic. Policies marginal and consolidate only."""

    enabled: bool = True
    """Compare what the engines' own counters and answers show with curves_file, and route by the corrected speeds,
    which follow when content of another kind is accepted less. One request in a hundred may be sent to the other
    backend to see how fast that is. What was learned stands in /curves. `learn: false` is short for enabled: false."""
    state_file: FileName | None = None
    """File in which what was learned is kept over a restart; a relative path counts from this file's folder. It is
    written each minute, and ignored when it is of other curves or engines. null: a restart begins with curves_file."""

    @model_validator(mode="before")
    @classmethod
    def _switch_as_section(cls, value: Any) -> Any:
        return {"enabled": value} if isinstance(value, bool) else value


class Stickiness(Section):
    """Conversations stay where their prompts are cached, as long as that pays. On GPUs of their own, with policies
    marginal and overflow. Only hashes of prompts are kept, in memory."""

    enabled: bool = True
    """Whether what each engine has cached is followed. Without it every turn of a conversation may go elsewhere, where
    its whole prompt is computed anew."""
    min_cached_tokens: Annotated[int, Field(ge=512, le=10_000_000)] = 8192
    """Cached tokens from which a conversation stays unless its backend is full or predicted to take twice as long.
    Where curves_file tells the prefill of both backends it is not used: the time itself is compared."""
    cache_tokens: Literal["auto"] | Annotated[int, Field(ge=512, le=1_000_000_000)] = "auto"
    """Tokens that the prefix cache of each engine holds. auto: what the engine says (SGLang max_total_num_tokens, vLLM
    vllm:cache_config_info), 262144 where it does not. Set it where a cache in host memory comes on top."""

    def affinity(self) -> Affinity | None:
        """The same for routing; None where nothing is followed."""
        tokens = None if self.cache_tokens == "auto" else self.cache_tokens
        return Affinity(self.min_cached_tokens, tokens) if self.enabled else None


class Routing(Section):
    """Which backend serves a request."""

    policy: Annotated[Policy, Word] = Policy.AUTO
    """auto takes marginal for placement separate and consolidate for shared where curves_file has the speeds of both
    backends; overflow and threshold where it does not. marginal sends each request where it delays all of them least,
    by the speeds in curves_file; consolidate sends all new requests to the backend that serves the demand of the last
    seconds sooner, by the same speeds, and lets them wait for it while it is full; threshold moves all new
    requests at once by the total in flight; overflow fills the speculative backend to leave_at and sends the rest to
    the baseline; pinned sends everything to the role in `pin`."""
    leave_at: Annotated[int, Field(ge=1, le=MAX_SEQUENCES)] = 9
    """Sequences in flight from which the baseline is favoured: your crossover. Measure it; on some machines
    speculation never pays, and then policy pinned is right. Policies threshold and overflow only."""
    enter_at: Literal["auto"] | Annotated[int, Field(ge=0, le=MAX_SEQUENCES)] = "auto"
    """Sequences in flight down to which speculation is favoured again; below leave_at, and the gap between them keeps
    the regime from flapping. auto: half of leave_at. Policy threshold only."""
    min_dwell_s: Annotated[float, Field(ge=0, le=3600)] = 2.0
    """Least time between two changes of regime. Raise it when /decisions shows frequent changes. Policies threshold and
    consolidate; the latter keeps to a minute at least."""
    smoothing_s: Annotated[float, Field(ge=0, le=600)] = 2.0
    """Time constant of the smoothed in-flight count that policy threshold looks at; 0 looks at the bare count. Raise
    it for bursty traffic."""
    ramp_s: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """How long a backend that has come back, from being down or from an open circuit, is kept below its full share, so
    that not everybody who waits falls upon it at once. 0: not at all."""
    pin: Annotated[Role, Word] = Role.BASELINE
    """The role that policy pinned sends everything to; the other one stays as failover. Use it for maintenance."""
    allow_header: bool = False
    """Whether clients may choose the role with the header x-crossover-backend. Open it for tests and benchmarks."""
    rules: Annotated[
        tuple[Rule, ...],
        Field(strict=False, examples=[[{"when": "long_prompt", "role": "baseline", "min_prompt_bytes": 65536}]]),
        BeforeValidator(lambda value: () if value is None else value),
    ] = ()
    """Kinds of requests that go to one role whatever the load, in order; empty: none. Use them where one backend
    serves a kind badly at every load."""
    curves_file: FileName | None = None
    """File of measured speeds and their verdict, as `crossover calibrate` writes it; a relative path counts from this
    file's folder. Policies marginal and consolidate route by them, and with them auto takes one of these; the verdict
    is only for people. They are shown on the operators' port (/curves, /status) and by `crossover check`, which warns
    where the policy contradicts them. A changed file is taken over."""

    slo: Slo = Slo()
    learn: Learn = Learn()
    affinity: Stickiness = Stickiness()

    def enters_at(self) -> int:
        """`enter_at` in force, always below leave_at when it is auto: 5 for 9, 1 for 2, 0 for 1."""
        return self.leave_at - max(1, self.leave_at // 2) if self.enter_at == "auto" else self.enter_at
