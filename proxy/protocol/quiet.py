"""Tells by a cheap look at the bytes that there is nothing to read in them, so that most chunks are never parsed.

For a stream whose content has begun. A test may say no in vain (spaces in the JSON, the words in the text), never yes
in vain for JSON as the engines write it. Not here: reading (answers.py).
"""

import re
from collections.abc import Callable

from proxy.model import Dialect

# All begin with a quotation mark and nothing else: the search then leaps from one to the next, and costs the same for a
# long text as for a short one but for the leap.
_CHOICES = re.compile(rb'"(?:error"|usage"(?!:null)|finish_reason"(?!:null))')
# Every event has counts, and those of the last one, with its finish reason, are the ones that count.
_GENERATE = re.compile(rb'"(?:error"|finish_reason"(?!:null))')
_MESSAGES = re.compile(rb'"(?:error"|message_)')
_RESPONSES = re.compile(rb'"(?:error"|response\.(?:completed|failed|incomplete)")')
_OLLAMA = re.compile(rb'"(?:error"|done"(?!:false))')

_TELLING = {
    Dialect.GENERATE: _GENERATE,
    Dialect.MESSAGES: _MESSAGES,
    Dialect.RESPONSES: _RESPONSES,
    Dialect.OLLAMA: _OLLAMA,
}


def telling_search(dialect: Dialect) -> Callable[[bytes], object]:
    """The search of a dialect: None for whole events that tell no finish, usage, error or end."""
    return _TELLING.get(dialect, _CHOICES).search
