"""What operators see as it happens: half an hour of history, a journal, and a stream of both to whoever watches.

history.py samples, journal.py keeps what changed, remembered.py what became of requests, stream.py tells readers;
watch.py holds them and has the only task. Routes are in routes.py, the files of the page in page.py, and json_text.py
writes whatever is told. Nothing here steers.
"""

from proxy.watch.json_text import json_text
from proxy.watch.page import Page, wants_page
from proxy.watch.routes import Views
from proxy.watch.watch import Watch

__all__ = ["Page", "Views", "Watch", "json_text", "wants_page"]
