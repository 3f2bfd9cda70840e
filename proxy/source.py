"""The configuration of a running proxy, read anew from where it came. A disk that hangs holds nothing else up.

What is in the files is read in config/, and taken over in app.py.
"""

import ssl
from collections.abc import Callable

from proxy import config
from proxy.config import InvalidConfig, Problem, Settings
from proxy.disk import Disk

# Reading takes milliseconds, and of the largest files some hundred. Who asks for a reload is then told that there is
# none, instead of waiting with all who ask after.
READ_WITHIN_S = 10.0
HUNG = "cannot be read ({}); mend: see to its disk, then reload"


async def anew(read: Callable[[], Settings], disk: Disk) -> tuple[Settings, dict[str, ssl.SSLContext]]:
    """The settings as they are written now, and a context for each section with TLS. `read` raises InvalidConfig, and
    blocks on the disk. Raises InvalidConfig, also where they do not come within READ_WITHIN_S."""

    def whole() -> tuple[Settings, dict[str, ssl.SSLContext]]:
        settings = read()
        return settings, config.contexts(settings)

    try:
        return await disk.ask("the configuration", whole, within_s=READ_WITHIN_S)
    except OSError as error:
        raise InvalidConfig([Problem("the configuration", 0, 0, "", HUNG.format(error.strerror))]) from error
