"""The desk, where requests are decided and counted: see desk.py."""

from proxy.dispatch.desk import Desk
from proxy.dispatch.plans import Assignment, BackendPlan, Plan

__all__ = ["Assignment", "BackendPlan", "Desk", "Plan"]
