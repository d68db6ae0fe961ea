"""The entities of `sharding_app.torture` under names of this app, with the role that the harness
gives them.
"""

import os

from sharding_app import ShardingSettings
from sharding_app.torture import entities
from sharding_app.torture.entities import Tick, Ticker

__all__ = ["TICKER", "TYPE", "Register", "Tick", "Ticker"]

TYPE = "acceptance.Register"
TICKER = "acceptance.ticker"


class Register(entities.Register, name=TYPE):
    """A register of the fault tests."""

    settings = ShardingSettings(role=os.environ.get("ACCEPTANCE_ROLE") or None)
