"""`${VAR}` and `${VAR:-default}` in a text, filled from the environment; `$${` stands for `${`.

Which texts are filled is not here (yaml_nodes.py). There is no nesting and no other shell syntax.
"""

import re
from collections.abc import Mapping

_SUBSTITUTION = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")


def substituted(text: str, environ: Mapping[str, str]) -> str:
    """The text with every variable filled in. Raises ValueError with a message that names the variable.

    A variable that is set and empty counts as not set, since an empty key or port is never meant: `${VAR:-}` says so
    where it is.
    """
    return _SUBSTITUTION.sub(lambda match: _filled(match, environ), text)


def _filled(match: re.Match[str], environ: Mapping[str, str]) -> str:
    name, default = match[1], match[2]
    if match[0] == "$${":
        return "${"
    if name is None:
        raise ValueError("has a `${` that begins no variable; mend: write ${NAME}, or $${ where the text ${ is meant")
    value = environ.get(name) or default
    if value is None:
        fault = "is empty" if name in environ else "is not set"
        raise ValueError(f"environment variable {name} {fault}; mend: set it, or give a default: ${{{name}:-default}}")
    return value
