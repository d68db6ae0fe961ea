"""The Django app: label `sharding`, at any place in INSTALLED_APPS. Nothing here connects to anything."""

from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.conf import settings
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from sharding_app.model.gateway import Gateway


class ShardingConfig(AppConfig):
    """Cluster sharding."""

    name = "sharding_app"
    label = "sharding"
    verbose_name = _("Sharding")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import every installed app's `entities`, as the admin does with `admin`: all models are loaded by now."""
        from sharding_app import checks, conf, quoting
        from sharding_app.model import gateway, transactions
        from sharding_app.runserver import start_node_beside
        from sharding_app.testing import names

        checks.register()
        names.remember(settings.DATABASES)
        gateway.set_gateway(_gateway)
        quoting.decide(conf.quotes_errors)
        # From now on: a thread whose connection is opened before the first ref is used may have a transaction, too.
        transactions.are_used()
        autodiscover_modules("entities")
        start_node_beside()


def _gateway() -> "Gateway":
    """What refs lead to; made at first use, so that nothing is connected before."""
    from sharding_app.bootstrap import make_gateway

    return make_gateway()
