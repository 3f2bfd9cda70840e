"""Words for people: why one request went where it went and what came of it, and where requests go now and why.

requests.py explains one request, running.py where one stands that still runs, present.py the present, troubles.py what
is wrong in it; learned.py says what live traffic has taught, figures.py numbers.
Values in, sentences out: who reads the desk, and who shows the sentences, is elsewhere.
"""

from proxy.telling.learned import taught
from proxy.telling.policies import ASKED, FORCED
from proxy.telling.present import now, why_out
from proxy.telling.requests import sentences
from proxy.telling.running import Running
from proxy.telling.state import CERTAIN, Favour, Lately, Present, Side
from proxy.telling.troubles import Trouble, troubles

__all__ = [
    "ASKED",
    "CERTAIN",
    "FORCED",
    "Favour",
    "Lately",
    "Present",
    "Running",
    "Side",
    "Trouble",
    "now",
    "sentences",
    "taught",
    "troubles",
    "why_out",
]
