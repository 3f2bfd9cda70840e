"""Answers of the chat, completions and embeddings routes, byte by byte like the real engine's."""

from collections.abc import Sequence
from typing import Any

import orjson

from proxy.lab.answers import Answer, Choice, event
from proxy.lab.asks import Ask

_METADATA = {"weight_version": "default"}

# Numbers in a made-up embedding: enough to be a vector, small enough to read.
_DIMENSIONS = 8


class ChatAnswer(Answer):
    """`/v1/chat/completions`: role chunk, content or tool-call chunks, a finish chunk a choice, usage, [DONE]."""

    def __init__(self, ask: Ask, choices: Sequence[Choice], created: int, *, speculative: bool = False) -> None:
        super().__init__(ask, choices, created, speculative=speculative)
        # The part of a chunk that never changes is made once: it is most of every chunk.
        self._heads = [self._head(choice) for choice in choices]

    def piece(self, choice: Choice, start: int, count: int) -> bytes:
        """See `Answer.piece`. The first one carries the role chunk too."""
        opening = b"" if start else self._opening(choice)
        body = choice.script.json(start, count)
        if self.ask.tool is not None:
            call = b'"tool_calls":[{"id":null,"index":0,"type":"function","function":{"name":null,"arguments":"'
            return opening + self._chunk(choice, b'"reasoning_content":null,' + call + body + b'"}}]')
        return opening + self._chunk(choice, b'"reasoning_content":null,"content":"' + body + b'"')

    def closing(self) -> bytes:
        """Finish chunks of all choices, then usage if it was asked for, then [DONE]."""
        finish = [self._finish(choice) for choice in self.choices]
        if self.ask.usage:
            finish.append(event({**self._frame("chat.completion.chunk"), "choices": [], "usage": self.usage()}))
        return b"".join(finish) + self.done_marker

    def whole(self) -> bytes:
        """The `chat.completion` object."""
        choices = [
            {
                "index": choice.index,
                "message": self._message(choice),
                "logprobs": None,
                "finish_reason": choice.finish,
                "matched_stop": choice.matched_stop,
            }
            for choice in self.choices
        ]
        frame = self._frame("chat.completion")
        return orjson.dumps({**frame, "choices": choices, "usage": self.usage(), "metadata": _METADATA})

    def _message(self, choice: Choice) -> dict[str, Any]:
        if self.ask.tool is None:
            return {"role": "assistant", "content": choice.text(), "reasoning_content": None, "tool_calls": None}
        call = {
            "id": _call_id(choice),
            "index": 0,
            "type": "function",
            "function": {"name": self.ask.tool, "arguments": choice.text()},
        }
        return {"role": "assistant", "content": None, "reasoning_content": None, "tool_calls": [call]}

    def _frame(self, kind: str) -> dict[str, Any]:
        return {"id": self.rid, "object": kind, "created": self.created, "model": self.ask.model}

    def _opening(self, choice: Choice) -> bytes:
        role = self._chunk(choice, b'"reasoning_content":null,"role":"assistant","content":""')
        if self.ask.tool is None:
            return role
        call = {
            "id": _call_id(choice),
            "index": 0,
            "type": "function",
            "function": {"name": self.ask.tool, "arguments": ""},
        }
        return role + self._chunk(choice, b'"reasoning_content":null,"tool_calls":' + orjson.dumps([call]))

    def _finish(self, choice: Choice) -> bytes:
        ending = orjson.dumps(choice.finish)
        return self._chunk(choice, b'"reasoning_content":null', ending, orjson.dumps(choice.matched_stop))

    def _chunk(self, choice: Choice, delta: bytes, finish: bytes = b"null", matched: bytes = b"null") -> bytes:
        usage = b""
        if self.ask.continuous_usage:
            usage = b',"usage":' + orjson.dumps(self.usage())
        parts = (
            self._heads[choice.index],
            delta,
            b'},"logprobs":null,"finish_reason":',
            finish,
            b',"matched_stop":',
            matched,
            b"}]",
            usage,
            b"}\n\n",
        )
        return b"".join(parts)

    def _head(self, choice: Choice) -> bytes:
        frame = orjson.dumps({**self._frame("chat.completion.chunk"), "id": choice.rid})[:-1]
        return b"data: " + frame + b',"choices":[{"index":%d,"delta":{' % choice.index


class CompletionsAnswer(Answer):
    """`/v1/completions`: text chunks, the last of each choice with its finish reason, usage, [DONE]."""

    def piece(self, choice: Choice, start: int, count: int) -> bytes:
        """See `Answer.piece`."""
        value = self._choice(choice, choice.script.text(start, count))
        usage = self.usage() if self.ask.continuous_usage else None
        return event({**self._frame(choice.rid), "choices": [value], "usage": usage})

    def closing(self) -> bytes:
        """Usage if it was asked for, then [DONE]."""
        usage = b""
        if self.ask.usage:
            usage = event({**self._frame(self.rid), "choices": [], "usage": self.usage()})
        return usage + self.done_marker

    def whole(self) -> bytes:
        """The `text_completion` object."""
        choices = [self._choice(choice, choice.text()) for choice in self.choices]
        return orjson.dumps({**self._frame(self.rid), "choices": choices, "usage": self.usage(), "metadata": _METADATA})

    def _choice(self, choice: Choice, text: str) -> dict[str, Any]:
        return {
            "index": choice.index,
            "text": text,
            "logprobs": None,
            "finish_reason": choice.finish if choice.done else None,
            "matched_stop": choice.matched_stop if choice.done else None,
        }

    def _frame(self, rid: str) -> dict[str, Any]:
        return {"id": rid, "object": "text_completion", "created": self.created, "model": self.ask.model}


class EmbeddingsAnswer(Answer):
    """`/v1/embeddings`: one small made-up vector a prompt. It does not stream."""

    def piece(self, choice: Choice, start: int, count: int) -> bytes:
        """Nothing: embeddings do not stream."""
        return b""

    def closing(self) -> bytes:
        """Nothing: embeddings do not stream."""
        return b""

    def whole(self) -> bytes:
        """The list of embeddings."""
        rows = [
            {"embedding": _vector(choice.prompt.fingerprint), "index": choice.index, "object": "embedding"}
            for choice in self.choices
        ]
        usage = {"prompt_tokens": self.prompt_tokens, "total_tokens": self.prompt_tokens}
        return orjson.dumps({"data": rows, "model": self.ask.model, "object": "list", "usage": usage})


def _call_id(choice: Choice) -> str:
    return f"call_{choice.rid[-24:]}"


def _vector(fingerprint: int) -> list[float]:
    return [((fingerprint >> (4 * place)) & 15) / 15.0 - 0.5 for place in range(_DIMENSIONS)]
