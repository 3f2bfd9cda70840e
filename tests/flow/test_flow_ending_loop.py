"""A test that fails ends, though it has left a server open."""

from fakes.interpreter import ran

LEAVES = """
import asyncio, sys
sys.path.insert(0, "tests")
from fakes.loops import EndingLoop
async def leave_a_server():
    await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
with asyncio.Runner(loop_factory=EndingLoop) as runner:
    runner.run(leave_a_server())
"""


def test_a_loop_closes_what_is_open_and_tells_of_it_though_warnings_are_errors() -> None:
    ended = ran("-W", "error", "-c", LEAVES)
    assert (ended.returncode, "ResourceWarning: unclosed resource <TCPServer" in ended.stderr) == (0, True)
