"""State that one engine keeps for a client: a request that names some goes to that engine or nowhere.

Which engine made what is remembered in state/holdings.py; that such a request goes there is decided in routing/.
"""

from proxy.dispatch.desk import Desk
from proxy.dispatch.plans import Assignment
from proxy.errors import SessionUnrouted, StateUnreachable
from proxy.model import Traits
from proxy.protocol.prefixes import response_state
from proxy.routing.policy import preference


def require_holder(desk: Desk, traits: Traits) -> None:
    """Raises SessionUnrouted where nothing says which engine has the state that a request names, StateUnreachable where
    that one takes no requests now."""
    holder = desk.holder(traits.state)
    role = preference(desk.rules, traits, holder)
    if role is None:
        raise SessionUnrouted(
            "session_params and previous_response_id name state that only one engine has, and none is known to have"
            " this: it was made too long ago, or its engine has begun anew since; send the whole conversation, or add"
            " a rule such as {when: session, role: baseline} to routing.rules, so that all such requests go to the same"
            " backend"
        )
    if role is holder and not desk.serves(role):
        raise StateUnreachable(
            "the backend that holds what the request names takes no requests now, and no other has it; try again later"
        )


def keep_made(desk: Desk, assignment: Assignment | None, response_id: str | None) -> None:
    """Remember which engine has made a response, once its id is known."""
    if assignment is not None and response_id is not None:
        desk.holdings.made(response_state(response_id), assignment.backend.shelf)
