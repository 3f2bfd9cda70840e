"""Why a connection ended without an answer: one closed set, for metrics and for those who end it."""

from enum import StrEnum


class CloseReason(StrEnum):
    """Why the proxy ended a connection without an answer; a closed set, used as metric label."""

    SILENT = "silent"
    IDLE = "idle"
    UNREAD = "unread"
    FLOODED = "flooded"
    OVER_LIMIT = "over_limit"
    HANDSHAKE_FAILED = "handshake_failed"
    HANDSHAKE_LATE = "handshake_late"
