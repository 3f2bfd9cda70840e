"""The configuration: one YAML file, read strictly, to frozen settings. The names that others use are here.

settings.py holds the keys, loading.py the way from a file, views.py what is shown; the rest serves these three. What
only a refused file or the documentation needs is not here, for the sake of the start: mends.py and reference.py.
"""

from proxy.config.certificates import contexts
from proxy.config.conflicts import cautions
from proxy.config.curves_cautions import outdated
from proxy.config.curves_shown import sentences, shown
from proxy.config.loading import from_mapping, load, override
from proxy.config.marks import Marks, mark
from proxy.config.problems import InvalidConfig, Problem
from proxy.config.settings import Backend, Settings
from proxy.config.views import (
    RESTART_KEYS,
    Change,
    beside_defaults,
    differences,
    effective,
    needs_restart,
    pending,
    read_anew,
)

__all__ = [
    "RESTART_KEYS",
    "Backend",
    "Change",
    "InvalidConfig",
    "Marks",
    "Problem",
    "Settings",
    "beside_defaults",
    "cautions",
    "contexts",
    "differences",
    "effective",
    "from_mapping",
    "load",
    "mark",
    "needs_restart",
    "outdated",
    "override",
    "pending",
    "read_anew",
    "sentences",
    "shown",
]
