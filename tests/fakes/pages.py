"""The status page in a real Chromium: opened, waited for, and looked over for what people would stumble on."""

from collections.abc import Iterable
from pathlib import Path

from fakes.browser import Tab

from proxy.app import App

AUDIT = (Path(__file__).parent / "audit.js").read_text(encoding="utf-8")
# Everything is there: the first look was shown, and the stream has told something.
READY = "document.body?.classList.contains('ready') && document.getElementById('link').dataset.state === 'live'"
SHIFTS = """
  globalThis.shifts = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.hadRecentInput) continue;
      const where = ({ x, y, width, height }) => [x, y, width, height].map(Math.round).join(" ");
      const moved = ({ node, previousRect, currentRect }) =>
        `${node?.id || node?.className || node?.nodeName} from ${where(previousRect)} to ${where(currentRect)}`;
      globalThis.shifts.push([entry.value, entry.sources.map(moved).join("; ")]);
    }
  }).observe({ type: "layout-shift", buffered: true });
"""
# Canvases remember what letters they have drawn where, for audit.js; what is filled over letters hides them.
TEXTS = """{
  const { clearRect, fillRect, fillText } = CanvasRenderingContext2D.prototype;
  const within = (one, two) =>
    one.left >= two.left && one.right <= two.right && one.top >= two.top && one.bottom <= two.bottom;
  Object.assign(CanvasRenderingContext2D.prototype, {
    clearRect(...box) {
      this.canvas.texts = [];
      return clearRect.apply(this, box);
    },
    fillRect(left, top, width, height) {
      const box = { left, top, right: left + width, bottom: top + height };
      this.canvas.texts = (this.canvas.texts ?? []).filter((each) => !within(each, box));
      return fillRect.call(this, left, top, width, height);
    },
    fillText(text, x, y) {
      const size = this.measureText(text);
      const { a, d, e, f } = this.getTransform();
      const [at, line] = [x * a + e, y * d + f];
      const [left, right] = [at - size.actualBoundingBoxLeft, at + size.actualBoundingBoxRight];
      const [top, bottom] = [line - size.actualBoundingBoxAscent, line + size.actualBoundingBoxDescent];
      (this.canvas.texts ??= []).push({ text: String(text), left, right, top, bottom });
      return fillText.call(this, text, x, y);
    },
  });
}"""


async def open_page(tab: Tab, app: App, *, width: int = 1440, height: int = 900) -> None:
    """Open the page and wait until it is live; layout shifts are noted from the first paint on."""
    await tab.size(width, height)
    await tab.send("Page.enable")
    await tab.send("Page.addScriptToEvaluateOnNewDocument", source=SHIFTS)
    await tab.send("Page.addScriptToEvaluateOnNewDocument", source=TEXTS)
    await tab.open(f"http://127.0.0.1:{app.admin_port}/")
    await tab.until(READY)


async def audited(tab: Tab) -> list[str]:
    """What is wrong with the page as it stands."""
    faults: list[str] = await tab.run(AUDIT)
    return faults


async def shifted(tab: Tab) -> list[tuple[float, str]]:
    """Every shift of the layout so far that a person did not cause, with who moved."""
    shifts: list[tuple[float, str]] = await tab.run("globalThis.shifts")
    return shifts


def outside(urls: Iterable[str], app: App) -> list[str]:
    """What was asked for elsewhere than at the operators' port."""
    return [url for url in urls if not url.startswith(f"http://127.0.0.1:{app.admin_port}/")]


def text(element: str) -> str:
    """The text of an element, as an expression in the page."""
    return f"document.getElementById('{element}').textContent"


def click(selector: str) -> str:
    """A click on the first element of a selector, as an expression in the page."""
    return f"document.querySelector({selector!r}).click()"
