"""The section `traces` of the file: meaning, unit, default and range of its keys, and the file of headers it names.

What a trace holds and how it leaves is not here (traces/).
"""

import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from proxy.config.key_files import content_of
from proxy.config.sections import WORDS, FileName, Section

Headers = tuple[tuple[str, str], ...]

# Some tokens; larger is another file.
MAX_HEADERS_BYTES = 1 << 16
_FORM = "must be http:// or https://, a host and a path; allowed: http://host:4318/v1/traces; mend: "
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\x20-\x7e]+")


def checked_endpoint(url: str) -> str:
    """The url of a collector, as it is. Raises ValueError, which does not quote it."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises where it is none
    except ValueError:
        raise ValueError(_FORM + "check the host and the port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii() or not url.isprintable():
        raise ValueError(_FORM + "begin it with http:// or https:// and a host")
    if "@" in parts.netloc or parts.query or parts.fragment or " " in url:
        raise ValueError(_FORM + "keep what is secret in headers_file")
    if parts.path in ("", "/"):
        raise ValueError(_FORM + "add the path, usually /v1/traces")
    return url


Endpoint = Annotated[
    str, AfterValidator(checked_endpoint), Field(json_schema_extra={WORDS: "http:// or https://, host, port and path"})
]


class Traces(Section):
    """Spans of each request by OTLP over HTTP, for which the extra `otel` has to be installed. Standard variables of
    OpenTelemetry (OTEL_*) hold where a key is null."""

    enabled: bool = False
    """Export spans, and continue the client's trace (traceparent) to the engines. false: its headers pass as they are
    and nothing of the library is loaded."""
    endpoint: Endpoint | None = None
    """Where spans are sent. null: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, else OTEL_EXPORTER_OTLP_ENDPOINT with /v1/traces,
    else http://localhost:4318/v1/traces."""
    headers_file: FileName | None = None
    """File of the headers sent with them, one `name: value` a line, usually a key of the collector's; a relative path
    counts from this file's folder. null: OTEL_EXPORTER_OTLP_HEADERS."""
    sample_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of requests that are traced, of those whose client brings no trace; one that does is traced as its client
    says. null: OTEL_TRACES_SAMPLER, else all. Lower it where spans are dear."""
    service_name: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """What the collector calls this proxy (service.name). null: OTEL_SERVICE_NAME, else crossover."""


def read_headers(file: Path) -> Headers:
    """The headers of a file, one a line; empty lines and those that begin with # say nothing.

    Raises ValueError with a message that quotes no value.
    """
    lines = content_of(file, MAX_HEADERS_BYTES).decode("ascii", errors="replace").splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if not line.strip() or line.startswith("#"):
            continue
        if not colon or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value.strip()):
            raise ValueError(f"names a file whose line {number} is no header; mend: write `name: value`, in ASCII")
        found.append((name.lower(), value.strip()))
    return tuple(found)
