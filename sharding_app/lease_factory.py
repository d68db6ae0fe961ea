"""Where leases come from: what `use_lease` says, as a factory (`sharding_app.ports.lease`)."""

from typing import cast

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from sharding_app.ports.lease import LeaseFactory

POSTGRES = "postgres"
"""The leases that come with the app: rows in the cluster's own database."""


def lease_factory(path: str) -> LeaseFactory | None:
    """Return the factory of that dotted path; None for those that come with the app, and for none at all."""
    if path in ("", POSTGRES):
        return None
    try:
        found = import_string(path)
    except (ImportError, ValueError) as error:  # ValueError: no dotted path at all
        raise ImproperlyConfigured(
            f"there is no lease {path!r} ({error}): say {POSTGRES!r}, or the dotted path of a factory."
        ) from error
    if not callable(found):
        raise ImproperlyConfigured(f"{path!r} is no factory of leases: it cannot be called.")
    return cast(LeaseFactory, found)
