"""The entities of `sharding_app.torture` under names of this app, with the role that the harness
gives them.
"""

import os

from sharding_app import ShardingSettings
from sharding_app.torture import accounts, entities
from sharding_app.torture.entities import Tick, Ticker

__all__ = ["ACCOUNTS", "TICKER", "TYPE", "Account", "Register", "Tick", "Ticker"]

TYPE = "acceptance.Register"
ACCOUNTS = "acceptance.Account"
TICKER = "acceptance.ticker"


class Register(entities.Register, name=TYPE):
    """A register of the fault tests."""

    settings = ShardingSettings(role=os.environ.get("ACCEPTANCE_ROLE") or None)


class Account(accounts.Account, name=ACCOUNTS):
    """An account of the fault tests."""

    settings = ShardingSettings(
        role=os.environ.get("ACCEPTANCE_ROLE") or None, passivate_after_seconds=accounts.PASSIVATE_SECONDS
    )
