"""Answers of the engine's native route and of the Ollama routes."""

from datetime import UTC, datetime
from typing import Any

import orjson

from proxy.lab.answers import EOS_TOKEN_ID, Answer, Choice, event


class GenerateAnswer(Answer):
    """`/generate`: every event carries the whole text so far, and `meta_info`."""

    head_at_once = True

    def piece(self, choice: Choice, start: int, count: int) -> bytes:
        """See `Answer.piece`; the text is cumulative."""
        return event(self._value(choice))

    def closing(self) -> bytes:
        """[DONE]."""
        return self.done_marker

    def whole(self) -> bytes:
        """One object, or a list of them where prompts or choices are many."""
        values = [self._value(choice) for choice in self.choices]
        return orjson.dumps(values if self._many else values[0])

    def refusal(self, message: str, kind: str, code: int) -> bytes:
        """As `Answer.refusal`, with the bare error of this route."""
        return event({"error": {"message": message}}) + self.done_marker

    @property
    def _many(self) -> bool:
        return self.ask.batched or self.ask.n > 1

    def _value(self, choice: Choice) -> dict[str, Any]:
        value = {
            "text": choice.text(),
            "output_ids": choice.script.ids(choice.produced),
            "meta_info": {
                "id": choice.rid,
                "finish_reason": _finish_reason(choice) if choice.done else None,
                "prompt_tokens": choice.prompt.tokens,
                "weight_version": "default",
                "num_retractions": 0,
                "reasoning_tokens": 0,
                "completion_tokens": choice.produced,
                "cached_tokens": choice.cached_tokens,
                "cached_tokens_details": None,
                "dp_rank": None,
                **(self._speculation(choice) if self.speculative else {}),
            },
        }
        return {**value, "index": choice.index} if self._many and self.ask.stream else value

    def _speculation(self, choice: Choice) -> dict[str, Any]:
        steps = max(1, choice.steps)
        return {
            "spec_accept_length": choice.produced / steps,
            "spec_num_correct_drafts": max(0, choice.produced - steps),
            "spec_verify_ct": choice.steps,
        }


class OllamaAnswer(Answer):
    """`/api/chat` and `/api/generate`: lines of JSON; `chat` says which of the two."""

    content_type = "application/x-ndjson"
    head_at_once = True
    chat = True

    def piece(self, choice: Choice, start: int, count: int) -> bytes:
        """See `Answer.piece`; one line."""
        return orjson.dumps({**self._frame(choice.script.text(start, count)), "done": False}) + b"\n"

    def closing(self) -> bytes:
        """The line that says `done`, with counts."""
        return orjson.dumps(self._last("")) + b"\n"

    def whole(self) -> bytes:
        """The whole text and the counts in one object."""
        return orjson.dumps(self._last(self.choices[0].text()))

    def refusal(self, message: str, kind: str, code: int) -> bytes:
        """One line with the error."""
        return orjson.dumps({"error": message}) + b"\n"

    def _frame(self, text: str) -> dict[str, Any]:
        said = {"message": {"role": "assistant", "content": text}} if self.chat else {"response": text}
        stamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        return {"model": self.ask.model, "created_at": stamp, **said}

    def _last(self, text: str) -> dict[str, Any]:
        counts = {"prompt_eval_count": self.prompt_tokens, "eval_count": self.completion_tokens}
        return {**self._frame(text), "done": True, "done_reason": self.choices[0].finish, **counts}


class OllamaGenerateAnswer(OllamaAnswer):
    """`/api/generate`: as `OllamaAnswer` with `response` for `message`."""

    chat = False


def _finish_reason(choice: Choice) -> dict[str, Any]:
    if choice.finish == "length":
        return {"type": "length", "length": choice.produced}
    return {"type": "stop", "matched": EOS_TOKEN_ID}
