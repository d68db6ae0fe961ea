"""Who may see and do what. Everything here asks Django's permissions, so groups and own backends count."""

from typing import Any

VIEW = "sharding.view_cluster"
PAYLOAD = "sharding.view_payload"


def may_view(user: Any) -> bool:
    """May see the dashboard. The admin site has asked whether the user may be there at all."""
    return bool(user.is_active and user.has_perm(VIEW))


def may_see_payloads(user: Any) -> bool:
    """May see what events and states hold."""
    return bool(user.is_active and user.has_perm(PAYLOAD))
