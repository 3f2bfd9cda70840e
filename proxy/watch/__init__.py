"""What operators see as it happens: half an hour of history, a journal, and a stream of both to whoever watches.

history.py samples, journal.py keeps what changed, remembered.py what became of requests, now.py says where requests go,
stream.py tells readers; watch.py holds them and has the only task. Routes are in routes.py. Nothing here steers.
"""

from proxy.watch.routes import Views
from proxy.watch.watch import Watch

__all__ = ["Views", "Watch"]
