"""The Django app: label `sharding`, at any place in INSTALLED_APPS. Nothing here connects to
anything.
"""

import atexit
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from sharding_app.entities.gateway import Gateway
    from sharding_app.entities.projections import Control


class ShardingConfig(AppConfig):
    """Cluster sharding."""

    name = "sharding_app"
    label = "sharding"
    verbose_name = _("Sharding")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import every installed app's `entities` and `projections`, as the admin imports `admin`.

        All models are loaded by now. Modules that only some commands need are imported by those.
        """
        from sharding_app import redaction
        from sharding_app.entities import gateway, projections, transactions
        from sharding_app.management.runserver_node import start_node_beside
        from sharding_app.runtime.telemetry import tracing
        from sharding_app.settings import real_databases, steady_logs

        steady_logs.steady()
        _register_checks()
        real_databases.remember(settings.DATABASES)
        gateway.set_gateway(_gateway)
        gateway.set_stand_in(_gateway_of_tests)
        tracing.set_traced(_traced_parts)
        redaction.decide(_quotes_errors)
        # From now on: a thread whose connection is opened before the first ref is used may have a
        # transaction, too.
        transactions.are_used()
        projections.set_control(_control)
        autodiscover_modules("entities")
        autodiscover_modules("projections")
        if declared := projections.projections.all():
            from sharding_app.runtime.projections.worker import declare_workers

            declare_workers(declared.values())
        start_node_beside()
        # Handlers of an exit that are registered later run before this one, so they may use refs.
        atexit.register(_goodbye)


def _goodbye() -> None:
    """Close the client of this process, which begins none any more: nothing would end it."""
    from sharding_app.entities import gateway

    gateway.set_gateway(_no_gateway)
    if (wiring := sys.modules.get("sharding_app.wiring")) is not None:
        wiring.goodbye()


def _no_gateway() -> "Gateway":
    from sharding_app.errors import Unavailable

    raise Unavailable("this process ends: it begins no client any more", code="stopped")


def _register_checks() -> None:
    for name in (
        "settings",
        "channel_layer",
        "types",
        "views",
        "retention",
        "snapshots",
        "personal",
        "platform",
        "databases",
    ):
        checks.register(_check(name), "sharding")
    # A hint, which would stand at each command of a project that is well.
    checks.register(_check("live_updates"), "sharding", deploy=True)
    for name in ("deployment", "clear_text"):
        checks.register(_check(name), "sharding", checks.Tags.security, deploy=True)
    checks.register(_check("server"), "sharding", checks.Tags.database)


def _check(name: str) -> Callable[..., Sequence[checks.CheckMessage]]:
    """Return the check of that name in `sharding_app.checks`, which is imported when it runs."""

    def check(*args: Any, **options: Any) -> Sequence[checks.CheckMessage]:
        from sharding_app import checks as ours

        return getattr(ours, f"check_{name}")(*args, **options)  # type: ignore[no-any-return]

    return check


def _gateway() -> "Gateway":
    """Make the target of refs, at first use, so that nothing is connected before."""
    from sharding_app.wiring import make_gateway

    return make_gateway()


def _control() -> "Control":
    """Make what controls projections: their rows, or the present test and its cluster in memory."""
    from sharding_app.settings.real_databases import in_tests

    if in_tests():
        from sharding_app.testing import modes

        if not modes.is_real():
            return modes.memory_control()
    from sharding_app.adapters.django.projections import DjangoControl

    return DjangoControl()


def _quotes_errors() -> bool:
    from sharding_app.settings.load import quotes_errors

    return quotes_errors()


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
