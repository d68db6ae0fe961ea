"""The Django app: label `sharding`, at any place in INSTALLED_APPS. Nothing here connects to
anything.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig
from django.conf import settings
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from sharding_app.entities.gateway import Gateway


class ShardingConfig(AppConfig):
    """Cluster sharding."""

    name = "sharding_app"
    label = "sharding"
    verbose_name = _("Sharding")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import every installed app's `entities` and `projections`, as the admin imports `admin`.

        All models are loaded by now.
        """
        from sharding_app import checks, redaction
        from sharding_app.adapters.django.projections import DjangoControl
        from sharding_app.entities import gateway, projections, transactions
        from sharding_app.management.runserver_node import start_node_beside
        from sharding_app.runtime.telemetry import tracing
        from sharding_app.settings import load, real_databases

        checks.register()
        real_databases.remember(settings.DATABASES)
        gateway.set_gateway(_gateway)
        gateway.set_stand_in(_gateway_of_tests)
        tracing.set_traced(_traced_parts)
        redaction.decide(load.quotes_errors)
        # From now on: a thread whose connection is opened before the first ref is used may have a
        # transaction, too.
        transactions.are_used()
        projections.set_control(DjangoControl)
        autodiscover_modules("entities")
        autodiscover_modules("projections")
        if declared := projections.projections.all():
            from sharding_app.runtime.projections.worker import declare_workers

            declare_workers(declared.values())
        start_node_beside()


def _gateway() -> "Gateway":
    """Make the target of refs, at first use, so that nothing is connected before."""
    from sharding_app.wiring import make_gateway

    return make_gateway()


def _traced_parts() -> Mapping[type[Any], type[Any]]:
    """Return the parts of the engine with spans: OpenTelemetry is set up."""
    from sharding_app.contrib.opentelemetry import TRACED

    return TRACED


def _gateway_of_tests() -> "Gateway | None":
    """Lead refs to a cluster in memory while tests run, unless the present test asks for the real
    one.
    """
    from sharding_app.settings.real_databases import in_tests

    if not in_tests():
        return None
    from sharding_app.testing import modes

    return None if modes.is_real() else modes.memory_cluster().gateway
