"""The Django app: label `sharding`, at any place in INSTALLED_APPS. Nothing here connects to anything."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class ShardingConfig(AppConfig):
    """Cluster sharding."""

    name = "sharding_app"
    label = "sharding"
    verbose_name = _("Sharding")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import every installed app's `entities`, as the admin does with `admin`: all models are loaded by now."""
        from sharding_app import checks

        checks.register()
        autodiscover_modules("entities")
