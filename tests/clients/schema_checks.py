"""What schemathesis looks at besides its own checks, with the python of .venv-clients: whose errors are whose.

Its own say that statuses, content types, headers and bodies are as the document has them. Not here: the runs
(test_client_schemathesis.py).
"""

from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, Response

# What the embedded engines never say by themselves in these runs: with them, and with an attempt's decision in the
# head, the proxy says that they have failed.
FAILED = frozenset({502, 503, 504})
REFUSED = "413"  # a status that every forwarded operation has, so that its shape tells the operation's dialect


@schemathesis.check
def errors_of_the_proxys_own_have_the_shape_of_the_path(_: CheckContext, response: Response, case: Case) -> None:
    """An error that no backend answered has the id of its request, our name, and the shape of the path's dialect."""
    shape = _shape(case.operation.definition.raw)
    answered = "x-crossover-backend" in response.headers and response.status_code not in FAILED
    if shape is None or response.status_code < 400 or answered:
        return
    assert "x-request-id" in response.headers, "an error of the proxy without the request's id"
    assert response.headers["server"] == ["crossover"], "an error of the proxy that says another name"
    told: dict[str, Any] = response.json()
    if shape == "OllamaError":
        assert isinstance(told["error"], str)
    elif shape == "AnthropicError":
        assert (told["type"], set(told["error"])) == ("error", {"type", "message"})
    else:
        assert set(told["error"]) == {"message", "type", "param", "code"}


def _shape(operation: dict[str, Any]) -> str | None:
    """The name of an operation's error shape; None for the proxy's own paths, and where no body comes."""
    reference = operation["responses"].get(REFUSED, {}).get("$ref", "")
    name: str = reference.rpartition("/")[2].removesuffix(REFUSED)
    return name or None
