"""Who may see and do what. Everything here asks Django's permissions, so groups and own backends
count.
"""

from dataclasses import dataclass
from typing import Any

VIEW = "sharding.view_cluster"
PAYLOAD = "sharding.view_payload"


def may_view(user: Any) -> bool:
    """May see the dashboard. The admin site has asked whether the user may be there at all."""
    return bool(user.is_active and user.has_perm(VIEW))


def may_see_payloads(user: Any) -> bool:
    """Tell whether the user may see the content of events and states."""
    return bool(user.is_active and user.has_perm(PAYLOAD))


def shown_command(command: str | None, *, payloads: bool) -> str:
    """A command as it is stored; without the digest of its arguments for those who may not see
    payloads.

    Four bytes of a hash are enough to find short arguments by trying.
    """
    return (command or "") if payloads else (command or "").partition("#")[0]


@dataclass(frozen=True, slots=True)
class Rights:
    """The user's permissions on the dashboard, asked once for a page."""

    payloads: bool = False
    rebalance: bool = False
    move: bool = False
    drain: bool = False
    shut_down: bool = False
    stop_entity: bool = False
    retry_message: bool = False
    discard_message: bool = False
    steer_projection: bool = False
    erase_subject: bool = False
    events: bool = False
    "May open the table of events in the admin."

    @classmethod
    def of(cls, user: Any) -> "Rights":
        return cls(
            payloads=may_see_payloads(user),
            rebalance=user.has_perm("sharding.rebalance_shards"),
            move=user.has_perm("sharding.move_shard"),
            drain=user.has_perm("sharding.drain_node"),
            shut_down=user.has_perm("sharding.shut_down_node"),
            stop_entity=user.has_perm("sharding.stop_entity"),
            retry_message=user.has_perm("sharding.retry_message"),
            discard_message=user.has_perm("sharding.discard_message"),
            steer_projection=user.has_perm("sharding.steer_projection"),
            erase_subject=user.has_perm("sharding.erase_subject"),
            events=user.has_perm("sharding.view_event"),
        )
