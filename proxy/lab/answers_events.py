"""Answers whose stream is a sequence of named events: Anthropic messages and OpenAI responses."""

from collections.abc import Sequence
from itertools import count as numbers
from typing import Any

import orjson

from proxy.lab.answers import Answer, Choice, event
from proxy.lab.asks import Ask


class MessagesAnswer(Answer):
    """`/v1/messages`: message_start, one content block, message_delta, message_stop; no [DONE]."""

    head_at_once = True

    def piece(self, choice: Choice, start: int, count: int) -> bytes:
        """See `Answer.piece`. The first one opens message and block."""
        opening = b"" if start else self._opening()
        text = choice.script.text(start, count)
        if self.ask.tool is None:
            delta = {"type": "text_delta", "text": text}
        else:
            delta = {"type": "input_json_delta", "partial_json": text}
        return opening + _named({"type": "content_block_delta", "index": 0, "delta": delta})

    def closing(self) -> bytes:
        """Block stop, message_delta with the stop reason and the output tokens, message_stop."""
        stop = {"stop_reason": self._stop_reason, "stop_sequence": None}
        usage = {"output_tokens": self.completion_tokens}
        return (
            _named({"type": "content_block_stop", "index": 0})
            + _named({"type": "message_delta", "delta": stop, "usage": usage})
            + _named({"type": "message_stop"})
        )

    def whole(self) -> bytes:
        """The message object."""
        choice = self.choices[0]
        block: dict[str, Any] = {"type": "text", "text": choice.text()}
        if self.ask.tool is not None:
            block = {**self._block(), "input": orjson.loads(choice.text()) if choice.finish != "length" else {}}
        return orjson.dumps({**self._message([block], self._stop_reason), "usage": self._usage()})

    def refusal(self, message: str, kind: str, code: int) -> bytes:
        """message_start, then the error event, then message_stop."""
        start = {"type": "message_start", "message": {**self._message([], None), "usage": self._usage()}}
        return _named(start) + _named(_anthropic_error(message, code)) + _named({"type": "message_stop"})

    @property
    def _stop_reason(self) -> str:
        finish = self.choices[0].finish
        return {"length": "max_tokens", "tool_calls": "tool_use"}.get(finish, "end_turn")

    def _opening(self) -> bytes:
        message = {**self._message([], None), "usage": {"input_tokens": self.prompt_tokens, "output_tokens": 0}}
        block = self._block()
        return _named({"type": "message_start", "message": message}) + _named(
            {"type": "content_block_start", "index": 0, "content_block": block}
        )

    def _block(self) -> dict[str, Any]:
        if self.ask.tool is None:
            return {"type": "text", "text": ""}
        return {"type": "tool_use", "id": f"toolu_{self.rid[:24]}", "name": self.ask.tool, "input": {}}

    def _message(self, content: list[Any], stop_reason: str | None) -> dict[str, Any]:
        return {
            "id": f"msg_{self.rid}",
            "type": "message",
            "role": "assistant",
            "content": content,
            "model": self.ask.model,
            "stop_reason": stop_reason,
            "stop_sequence": None,
        }

    def _usage(self) -> dict[str, Any]:
        return {"input_tokens": self.prompt_tokens, "output_tokens": self.completion_tokens}


class ResponsesAnswer(Answer):
    """`/v1/responses`: created, in_progress, one output item with one text part, completed; no [DONE]."""

    head_at_once = True

    def __init__(self, ask: Ask, choices: Sequence[Choice], created: int, *, speculative: bool = False) -> None:
        super().__init__(ask, choices, created, speculative=speculative)
        self._numbers = numbers()

    def piece(self, choice: Choice, start: int, count: int) -> bytes:
        """See `Answer.piece`. The first one opens response, item and part."""
        opening = b"" if start else self._opening()
        delta = {"type": "response.output_text.delta", **self._place, "delta": choice.script.text(start, count)}
        return opening + self._say({**delta, "logprobs": []})

    def closing(self) -> bytes:
        """Text, part and item done, then completed (or incomplete at the token limit)."""
        text = self.choices[0].text()
        final = "response.incomplete" if self._status == "incomplete" else "response.completed"
        return b"".join(
            (
                self._say({"type": "response.output_text.done", **self._place, "text": text, "logprobs": []}),
                self._say({"type": "response.content_part.done", **self._place, "part": _part(text)}),
                self._say(
                    {"type": "response.output_item.done", "output_index": 0, "item": self._item("completed", text)}
                ),
                self._say({"type": final, "response": self._response(self._status, text)}),
            )
        )

    def whole(self) -> bytes:
        """The response object."""
        return orjson.dumps(self._response(self._status, self.choices[0].text()))

    def refusal(self, message: str, kind: str, code: int) -> bytes:
        """The response.failed event."""
        failed = {**self._response("failed", None), "error": {"code": "server_error", "message": message}}
        return self._say({"type": "response.failed", "response": failed})

    @property
    def _status(self) -> str:
        return "incomplete" if self.choices[0].finish == "length" else "completed"

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self.rid}", "output_index": 0, "content_index": 0}

    def _say(self, value: dict[str, Any]) -> bytes:
        return event({**value, "sequence_number": next(self._numbers)}, value["type"])

    def _opening(self) -> bytes:
        started = self._response("in_progress", None)
        return b"".join(
            (
                self._say({"type": "response.created", "response": started}),
                self._say({"type": "response.in_progress", "response": started}),
                self._say(
                    {"type": "response.output_item.added", "output_index": 0, "item": self._item("in_progress", None)}
                ),
                self._say({"type": "response.content_part.added", **self._place, "part": _part("")}),
            )
        )

    def _item(self, status: str, text: str | None) -> dict[str, Any]:
        content = [] if text is None else [_part(text)]
        return {
            "id": f"msg_{self.rid}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _response(self, status: str, text: str | None) -> dict[str, Any]:
        over = status in ("completed", "incomplete")
        return {
            "id": f"resp_{self.rid}",
            "object": "response",
            "created_at": self.created,
            "model": self.ask.model,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "output": [self._item("completed", text)] if over else [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": self._usage() if over else None,
        }

    def _usage(self) -> dict[str, Any]:
        return {
            "input_tokens": self.prompt_tokens,
            "input_tokens_details": {"cached_tokens": self.cached_tokens},
            "output_tokens": self.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


def _named(value: dict[str, Any]) -> bytes:
    return event(value, value["type"])


def _anthropic_error(message: str, code: int) -> dict[str, Any]:
    kind = "overloaded_error" if code == 503 else "api_error"
    return {"type": "error", "error": {"type": kind, "message": message}}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
