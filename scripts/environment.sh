# Sourced by the other scripts: makes .venv from a lock, once, and costs two file comparisons when it is current.
# Not here: the making itself (environment.py).
#
#   . "$root/scripts/environment.sh"    with $root, the tree's top, set
#   environment run                     what serving needs (requirements/run.lock)
#   environment calibrate               that, and what `crossover calibrate` fits and draws with (requirements/calibrate.lock)
#   environment otel                    that of run, and what traces are made and sent with (requirements/otel.lock)
#   environment top                     that of run, and what `crossover top` draws with (requirements/top.lock)
#   environment dev                     that, and what testing and checking need (requirements/dev.lock)
#   environment fuzz                    that, and what fuzzing needs, in .venv-fuzz (requirements/fuzz.lock)
#   environment real                    two real engines and their weights, in .venv-real (requirements/real.lock)
#   environment clients                 SDKs that tests run beside the proxy, in .venv-clients (requirements/clients.lock)
#   environment peers                   what tests of other projects need, in .venv-peers (requirements/peers.lock)
#   environment load                    load generators of others, in .venv-load (requirements/load.lock)
#
# PYTHON=/path/to/python chooses the interpreter that .venv is made with; remove .venv to choose anew.

environment() {
    home=.venv oldest=11
    if [ "$1" = fuzz ]; then
        home=.venv-fuzz oldest=12 # atheris has no wheel for an older one
    elif [ "$1" = real ] || [ "$1" = clients ] || [ "$1" = peers ] || [ "$1" = load ]; then
        home=.venv-$1
    fi
    if [ -x "$root/$home/bin/python" ] && cmp -s "$root/requirements/$1.lock" "$root/$home/.$1.lock"; then
        return 0
    fi
    chosen=$(interpreter) || exit 1
    "$chosen" "$root/scripts/environment.py" "$1" || exit 1
}

interpreter() {
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, int(sys.argv[1])))' "$oldest" 2>/dev/null; then
            echo "$candidate"
            return 0
        elif [ -n "${PYTHON:-}" ]; then
            echo "PYTHON=$PYTHON does not run or is older than Python 3.$oldest; point it at a newer one, or unset it" >&2
            return 1
        fi
    done
    echo "This needs Python 3.$oldest or newer and found none on PATH; install one (Debian and Ubuntu: apt install" \
        "python3 python3-venv; macOS: brew install python3), or set PYTHON=/path/to/python3" >&2
    return 1
}
