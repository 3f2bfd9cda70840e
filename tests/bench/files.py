"""The limit of open files: two thousands of streams need as many descriptors, and many machines begin at 1,024."""

import resource

# A stream takes two descriptors of a proxy; beside them it has listeners, logs and kept connections.
RESERVED = 200
DESCRIPTORS_PER_STREAM = 2


def raise_file_limit() -> int:
    """Take as many as the machine lets us; processes begun later have the same. How many that are."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def max_streams() -> int:
    """The most streams that a proxy on this machine can carry."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        hard = 1 << 20
    return (hard - RESERVED) // DESCRIPTORS_PER_STREAM
