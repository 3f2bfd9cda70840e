"""One Chromium for each file of tests of the page."""

from fakes.browser import browser

__all__ = ["browser"]
