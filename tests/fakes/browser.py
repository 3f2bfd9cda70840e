"""A real Chromium without a window, steered over its debugging port: what it shows, asks for and complains of."""

import asyncio
import base64
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from fakes.until import until

from proxy import tasks

# By their names on Debian, on others and where scripts/chromium has put one.
NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--mute-audio"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--disable-dev-shm-usage", "--remote-debugging-port=0", "--force-color-profile=srgb", "about:blank"),
)
WITHIN_S = 30.0


def found() -> str | None:
    """Where a Chromium is; None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)


class Tab:
    """One page. `errors` are its console's errors and its exceptions, `asked` all urls that it asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.received_bytes = 0
        self.logged_in = 0  # times that a user and a password were asked for
        self._login: dict[str, str] | None = None
        self._socket = socket
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._last = 0
        self._listener = tasks.spawn(self._listen(), name="browser")

    async def send(self, method: str, **params: Any) -> Any:
        """Give one command and wait for its answer."""
        self._last += 1
        answer = self._answers[self._last] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._last, "method": method, "params": params})
        async with asyncio.timeout(WITHIN_S):
            return await answer

    async def open(self, url: str) -> None:
        """Go to a page; returns when the browser has begun to load it."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.send(f"{domain}.enable")
        if self._login is not None:
            await self.send("Fetch.enable", handleAuthRequests=True)
        await self.send("Page.navigate", url=url)

    def log_in(self, user: str, password: str) -> None:
        """Answer with these when the page asks for a user and a password, as a person would in the browser's dialog."""
        self._login = {"username": user, "password": password}

    async def run(self, script: str) -> Any:
        """The value of an expression in the page; it may be a promise."""
        # What nobody holds may be collected before it is settled.
        script = f"globalThis.asked = {script}"
        told = await self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise AssertionError(f"{script}: {told['exceptionDetails']['exception'].get('description')}")
        return told["result"].get("value")

    async def until(self, script: str, within_s: float = WITHIN_S) -> Any:
        """The first true value of an expression, looked at every few milliseconds in the page itself."""
        return await self.run(
            f"""new Promise((met, failed) => {{
                const ends = performance.now() + {within_s * 1000};
                const look = () => {{
                    const value = (() => {{ try {{ return {script}; }} catch {{ return null; }} }})();
                    if (value) met(value);
                    else if (performance.now() > ends) failed(new Error("did not come true"));
                    else setTimeout(look, 20);
                }};
                look();
            }})"""
        )

    async def size(self, width: int, height: int, ratio: float = 1.0) -> None:
        """Make the window so large, in CSS pixels."""
        how = {"width": width, "height": height, "deviceScaleFactor": ratio, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", **how)

    async def prefer(self, scheme: str) -> None:
        """Prefer light or dark."""
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key by its name: Tab, Enter, ArrowLeft."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        how = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        await self.send("Input.dispatchKeyEvent", type="keyDown", **how, **text)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **how)

    async def shoot(self, path: Path, *, whole: bool = True) -> None:
        """A picture of the page, or of what of it is in view."""
        told = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(told["data"]))

    async def close(self) -> None:
        """Leave the page."""
        await self._socket.close()
        await tasks.end(self._listener)

    async def _listen(self) -> None:
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                answer = self._answers.pop(told["id"], None)
                if answer is not None and not answer.done():
                    if "error" in told:
                        answer.set_exception(AssertionError(told["error"]["message"]))
                    else:
                        answer.set_result(told["result"])
            elif told["method"].startswith("Fetch."):
                await self._let_pass(told["method"], told["params"])
            else:
                self._hear(told["method"], told["params"])

    async def _let_pass(self, method: str, params: dict[str, Any]) -> None:
        """Let a request go on that stands still for a login. Its answer to us is waited for by nobody."""
        self._last += 1
        told: dict[str, Any] = {"requestId": params["requestId"]}
        if method == "Fetch.authRequired":
            self.logged_in += 1
            told["authChallengeResponse"] = {"response": "ProvideCredentials", **(self._login or {})}
        command = "continueWithAuth" if method == "Fetch.authRequired" else "continueRequest"
        await self._socket.send_json({"id": self._last, "method": f"Fetch.{command}", "params": told})

    def _hear(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Network.dataReceived":
            self.received_bytes += params["dataLength"]
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning", "assert"}:
            self.errors.append(" ".join(str(each.get("value", each.get("description"))) for each in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")


class Browser:
    """A running Chromium."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session = session
        self._address = address

    @contextlib.asynccontextmanager
    async def tab(self) -> AsyncIterator[Tab]:
        """A page of its own, with cookies and memory of its own."""
        async with self._session.put(f"{self._address}/json/new?about:blank") as answer:
            told = await answer.json()
        tab = Tab(await self._session.ws_connect(told["webSocketDebuggerUrl"], max_msg_size=0))
        try:
            yield tab
        finally:
            await tab.close()
            async with self._session.get(f"{self._address}/json/close/{told['id']}"):
                pass


@contextlib.asynccontextmanager
async def browsing(*flags: str) -> AsyncIterator[Browser]:
    """Start a Chromium with a profile of its own, and end it."""
    program = found()
    assert program is not None, "no Chromium here: scripts/chromium fetches one"
    with tempfile.TemporaryDirectory(prefix="crossover-browser-", ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            *(program, f"--user-data-dir={folder}", *flags, *FLAGS),
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # what is started may be a script that starts it, which does not end it
        )
        try:
            async with aiohttp.ClientSession() as session:
                yield Browser(session, await _address(process, Path(folder)))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            await process.wait()


async def _address(process: asyncio.subprocess.Process, folder: Path) -> str:
    """Where it listens: it writes its port into its profile."""
    told = folder / "DevToolsActivePort"
    await until(lambda: process.returncode is not None or _first_line(told), within_s=WITHIN_S, what="the browser")
    assert process.returncode is None, "the browser ended before it began"
    return f"http://127.0.0.1:{_first_line(told)}"


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").partition("\n")[0]
    except OSError:
        return ""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One for all tests of a file, on one loop: to start one takes a second. Skips them where there is no Chromium."""
    if found() is None:
        pytest.skip("no Chromium; scripts/chromium finds or installs one where apt-get is")
    async with browsing() as made:
        yield made
