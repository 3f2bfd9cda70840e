"""The proxy under cProfile from the moment it serves: what its start costs would bury the rest.

Usage, as cProfile's own: -m bench.profiled FILE -m proxy serve CONFIG. The file is written at the end.
"""

import cProfile
import sys

from proxy import __main__, serve


def main() -> int:
    """Serve; the proxy's exit code."""
    file, _, _, *arguments = sys.argv[1:]
    profile = cProfile.Profile()
    last_of_start = serve.collect_from_here

    def begin() -> None:
        last_of_start()
        profile.enable()

    serve.collect_from_here = begin
    try:
        return __main__.main(arguments)
    finally:
        profile.disable()
        profile.dump_stats(file)


if __name__ == "__main__":
    sys.exit(main())
