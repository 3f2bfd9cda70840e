"""Which prompts begin alike, and what clients call a conversation: hashes of what a request's body says.

No tokenizer: a prompt is cut by its bytes, so that two cuts agree wherever two prompts begin with the same text. The
hashes are the interpreter's own, which are keyed anew at each start, so that nobody can make two prompts look alike;
nothing else of a prompt is kept. Not here: what is known of where a prefix lives (state/).
"""

from typing import Any

import orjson

BLOCK_TOKENS = 512
"""Tokens that one hash stands for, as in published traces of prefixes. Half of it would find a quarter of a second of
prefill more at most, for twice the hashes."""

BLOCK_BYTES = 2048
"""The same by the four bytes that a token is taken to have."""

MAX_BLOCKS = 256
"""Blocks of one prompt that are looked at: 131,072 tokens, more than which no engine takes of text. It bounds the time
for one body by a fifth of a millisecond."""

# What parts an engine's cache: under another of these the same text is computed anew.
_APART = ("model", "lora_path", "cache_salt", "extra_key")
# What chat templates put before the conversation, in the order in which most do.
_BEFORE = ("tools", "functions", "system", "instructions")
# The prompt itself, the first that is there: chat and messages; completions; responses; the native routes.
_PROMPTS = ("messages", "prompt", "input", "text", "input_ids", "token_ids", "inputs")
# What names one conversation, the plainest name first.
_NAMES = ("session_id", "conversation_id", "conversation", "prompt_cache_key")
# What names who talks: of many conversations at once.
_SPEAKERS = ("user", "safety_identifier")

# Where the probabilities of the prompt are asked for, one of these is there.
_ABOUT_THE_PROMPT = frozenset({"prompt_logprobs", "echo", "logprob_start_len"})

NAMING = frozenset({*_NAMES, *_SPEAKERS, "metadata"})
"""Fields that may tell which conversation a request belongs to."""


def read_prefix(body: dict[str, Any]) -> tuple[int, ...]:
    """A hash for each whole block of the prompt in a parsed `body`, of the block and all before it; MAX_BLOCKS at most.

    It is the same whatever the order of the other fields, and one that goes on where another ends begins with its
    hashes. Of several prompts in one body the first counts. Empty where there is none, or none that can be said again,
    or where the engine is asked what it makes of each word of it: that is computed anew, whatever is cached.
    """
    if _is_read_anew(body):
        return ()
    try:
        said = _said(body)
        if len(said) < BLOCK_BYTES:
            return ()
        before = hash(orjson.dumps([body.get(name) for name in _APART]))
    except TypeError:  # a number beyond 64 bits, half of a pair of surrogates, or brackets without end
        return ()
    hashes = []
    for begin in range(0, min(len(said), MAX_BLOCKS * BLOCK_BYTES) - BLOCK_BYTES + 1, BLOCK_BYTES):
        before = hash((before, said[begin : begin + BLOCK_BYTES]))
        hashes.append(before)
    return tuple(hashes)


def read_conversation(body: dict[str, Any], key: bytes, prefix: tuple[int, ...]) -> int:
    """A hash of what the client calls the conversation, 0 where it has no name.

    `key` is what a header says of it (b"": nothing), which counts first. Who talks may have many conversations: that
    counts only together with how the prompt begins.
    """
    if key:
        return hash(key) or 1
    if body.keys().isdisjoint(NAMING):
        return 0
    for name in _NAMES:
        if said := _name(body.get(name)):
            return hash(said.encode("utf-8", "surrogatepass")) or 1
    if prefix:
        metadata = body.get("metadata")
        speakers = [body.get(name) for name in _SPEAKERS]
        speakers.append(metadata.get("user_id") if isinstance(metadata, dict) else None)
        for value in speakers:
            if said := _name(value):
                return hash((said, prefix[0])) or 1
    return 0


def read_state(body: dict[str, Any]) -> int:
    """A hash of what a request names in the memory of one engine, 0 where that has no name."""
    if said := _name(body.get("previous_response_id")):
        return response_state(said)
    said = _name(body.get("session_params"))
    return hash(("session", said)) or 1 if said else 0


def response_state(response_id: str) -> int:
    """The same for a stored response, by its id."""
    return hash(("response", response_id)) or 1


def _is_read_anew(body: dict[str, Any]) -> bool:
    """Whether the probabilities of the prompt itself are asked for, in the words of any dialect."""
    if body.keys().isdisjoint(_ABOUT_THE_PROMPT):
        return False
    since = body.get("logprob_start_len")
    return (
        body.get("prompt_logprobs") is not None
        or (bool(body.get("echo")) and body.get("logprobs") is not None and body["logprobs"] is not False)
        or (bool(body.get("return_logprob")) and isinstance(since, int) and since >= 0)
    )


def _said(body: dict[str, Any]) -> bytes:
    """The prompt as bytes. Raises TypeError where it cannot be said again."""
    pieces = [orjson.dumps(value) for name in _BEFORE if (value := body.get(name)) is not None]
    for name in _PROMPTS:
        prompt = body.get(name)
        if prompt is None:
            continue
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        # Without the bracket or quotation mark behind it, in whose place the next turn goes on.
        pieces += (name.encode(), orjson.dumps(prompt)[:-1])
        break
    return b"".join(pieces)


def _name(value: object) -> str:
    """A name that is one; "" for anything else."""
    if isinstance(value, dict):
        value = value.get("id")
    return value if isinstance(value, str) else ""
