"""One Chromium for each file of tests of the page, and seconds that pass when a test lets them."""

from collections.abc import Iterator

import pytest
from fakes.browser import browser

from proxy import watch

__all__ = ["browser"]


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Turns come when the test takes one: one that comes between a test's own turn and its look tells of a second in
    which nothing happened."""
    start = watch.Watch.start
    monkeypatch.setattr(watch.Watch, "start", lambda self: start(self, every_s=3600.0))
    return iter(())
