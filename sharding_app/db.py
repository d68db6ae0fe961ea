"""Which database the cluster lives in: the alias that `SHARDING["DATABASE"]` names. Nothing here touches it."""

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper


def journal_alias() -> str:
    """Return the alias of the cluster's database."""
    alias = getattr(settings, "SHARDING", {}).get("DATABASE", "default")
    return str(alias)


def holds_our_tables(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether our tables belong on this connection: it is PostgreSQL and the cluster's own alias."""
    return connection.vendor == "postgresql" and connection.alias == journal_alias()
