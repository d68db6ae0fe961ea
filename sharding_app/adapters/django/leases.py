"""The factory of leases that `use_lease` names (`sharding_app.ports.lease`)."""

from typing import cast

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from sharding_app.ports.lease import LeaseFactory

POSTGRES = "postgres"
"""Names the leases that come with the app: rows in the cluster's own database."""


def lease_factory(path: str) -> LeaseFactory | None:
    """Return the factory with that dotted path; None for the app's own leases, and for none."""
    if path in ("", POSTGRES):
        return None
    try:
        found = import_string(path)
    except (ImportError, ValueError) as error:  # ValueError: not a dotted path
        raise ImproperlyConfigured(
            f"cannot import the lease factory {path!r} ({error}): use {POSTGRES!r}, "
            "or the dotted path of a factory."
        ) from error
    if not callable(found):
        raise ImproperlyConfigured(f"{path!r} is not a lease factory: it is not callable.")
    return cast(LeaseFactory, found)
