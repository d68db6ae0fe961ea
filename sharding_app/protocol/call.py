"""A call: one command of one entity, on its way from its caller to the link of the entity's
home.
"""

import msgspec

from sharding_app.protocol.ids import EntityId
from sharding_app.protocol.messages import Delivery

LONGEST_SECONDS = 1e9
"""No caller waits for longer, whatever its timeout: a deadline has to fit into a message, and a
thread cannot wait for much longer.
"""


class Call(msgspec.Struct, gc=False):
    """A command as its caller made it: made once, with its encoded arguments, and handed on.

    The gateway of the caller's process adds `chain` and `trace`, which the caller's context knows.
    """

    type: str
    entity: EntityId
    command: str
    args: bytes
    timeout: float | None = None
    "How many seconds the caller waits; None: the process's default."
    command_id: str = ""
    tell: bool = False
    "No caller waits for the result."
    chain: tuple[str, ...] = ()
    "Entities whose commands led to this call, as 'type/id', outermost first."
    trace: str = ""
    "The caller's span, as it travels in an envelope."
    delivery: Delivery | None = None
    "It delivers a durable message or timer, whose row goes with its effect."
