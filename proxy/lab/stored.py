"""The responses that an embedded engine has stored: read again by id, and taken up by the next of a conversation.

They are in this engine's memory alone, as in SGLang: another one does not know them, nor does this one once it died.
Responses in the background are not here: one that asks for it is answered when it has ended.
"""

from collections import OrderedDict
from dataclasses import replace
from typing import NamedTuple

from proxy.lab.answers import Answer
from proxy.lab.ask_parts import BadAskError, text_prompt
from proxy.lab.asks import Ask, check_sizes

# The real engine forgets none; a demo that runs for weeks must not grow without end.
_MAX_STORED = 10_000

_INVALID = "invalid_request_error"


class _Kept(NamedTuple):
    """All that was said up to the end of one response, and its body."""

    said: str
    body: bytes


class Stored:
    """The stored responses of one engine, the newest."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def keep(self, answer: Answer) -> None:
        """Store an answer that has ended, unless its request did not want that."""
        if not answer.ask.store:
            return
        text = answer.choices[0].text()
        self._kept[f"resp_{answer.rid}"] = _Kept(f"{answer.ask.said}{text}\n", answer.whole())
        while len(self._kept) > _MAX_STORED:
            self._kept.popitem(last=False)

    def taken_up(self, ask: Ask, context_length: int) -> Ask:
        """The request with all that was said before its own words. Raises `BadAskError`, also where the engine does not
        have what it goes on with."""
        if ask.previous is None:
            return ask
        said = self._found(ask.previous).said + ask.said
        longer = replace(ask, said=said, prompts=(text_prompt(said),))
        check_sizes(longer, context_length)
        return longer

    def body(self, response_id: str) -> bytes:
        """A response as it was answered. Raises `BadAskError`."""
        return self._found(response_id).body

    def cancel(self, response_id: str) -> None:
        """Always raises `BadAskError`: what is stored has ended."""
        self._found(response_id)
        raise BadAskError("Cannot cancel a synchronous response.", _INVALID)

    def forget(self) -> None:
        """Lose all of them, as an engine that dies does."""
        self._kept.clear()

    def _found(self, response_id: str) -> _Kept:
        kept = self._kept.get(response_id)
        if kept is not None:
            return kept
        if response_id.startswith("resp_"):
            raise BadAskError(f"Response with id '{response_id}' not found.", _INVALID, 404)
        raise BadAskError(f"Invalid 'response_id': '{response_id}'. Expected an ID that begins with 'resp'.", _INVALID)
