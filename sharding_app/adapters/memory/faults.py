"""Faults between a client and the virtual servers, as small policies that are asked once for each
request.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn, Protocol

from sharding_app.adapters.memory.sessions import ServerError
from sharding_app.adapters.memory.steps import Pause

Later = Callable[[float, Callable[[], object]], object]
"""Call a function after a number of seconds of the world's time: `loop.call_later`, or the
simulation's scheduler."""

Pace = Callable[[str, str, Pause], float]
"""Return how long a step takes, by client, kind of request, and place."""


class Plan(NamedTuple):
    """The fate of one request to the server."""

    execute_after: float | None = 0.0
    "Seconds until the server executes it; None: it never arrives."
    answer_after: float | None = 0.0
    "Seconds from there until the client has the answer; None: the answer is lost."
    lost_after: float | None = None
    """Seconds from the request until the client gives the connection up. The server may still
    execute it."""
    error: ServerError | None = None
    "The server answers with this instead of executing it."

    def refuse(self) -> NoReturn:
        raise self.error or LookupError("nothing is refused")


class ServerFaults(Protocol):
    """Decides about requests to the virtual Postgres."""

    def plan(self, client: str, kind: str) -> Plan | None:
        """Return the fate of a request; None: it is executed and answered at once. `kind` is the
        port's method.
        """
        ...


class NetworkFaults(Protocol):
    """Decides about messages on the virtual channel layer."""

    def refuses(self, client: str) -> bool:
        """Whether the layer is out of this client's reach now."""
        ...

    def route(self, client: str, channel: str) -> Sequence[float] | None:
        """Return the delay of each copy that arrives (none: lost); None: one copy, at once.

        Raises PeerUnreachable: the layer takes no message for this channel.
        """
        ...
