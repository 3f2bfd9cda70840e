"""Tells by a cheap look at the bytes that there is nothing to read in them, so that most chunks are never parsed.

For a stream whose content has begun. A test may say no in vain (spaces in the JSON, the words in the text), never yes
in vain for JSON as the engines write it. Not here: reading (answers.py).
"""

from collections.abc import Callable

from proxy.model import Dialect


def _choices_quiet(data: bytes) -> bool:
    """Chat and completions: no finish reason but null, no usage but null, no error."""
    return (
        data.count(b'"finish_reason"') == data.count(b'"finish_reason":null')
        and data.count(b'"usage"') == data.count(b'"usage":null')
        and b'"error"' not in data
    )


def _generate_quiet(data: bytes) -> bool:
    """Native: every event has counts, and those of the last one, with its finish reason, are the ones that count."""
    return data.count(b'"finish_reason"') == data.count(b'"finish_reason":null') and b'"error"' not in data


def _messages_quiet(data: bytes) -> bool:
    return b'"message_' not in data and b'"error"' not in data


def _responses_quiet(data: bytes) -> bool:
    return (
        b'"response.completed"' not in data
        and b'"response.failed"' not in data
        and b'"response.incomplete"' not in data
        and b'"error"' not in data
    )


def _ollama_quiet(data: bytes) -> bool:
    return data.count(b'"done"') == data.count(b'"done":false') and b'"error"' not in data


_QUIET: dict[Dialect, Callable[[bytes], bool]] = {
    Dialect.GENERATE: _generate_quiet,
    Dialect.MESSAGES: _messages_quiet,
    Dialect.RESPONSES: _responses_quiet,
    Dialect.OLLAMA: _ollama_quiet,
}


def quiet_test(dialect: Dialect) -> Callable[[bytes], bool]:
    """The test for a dialect: true for whole events that tell no finish, usage, error or end."""
    return _QUIET.get(dialect, _choices_quiet)
