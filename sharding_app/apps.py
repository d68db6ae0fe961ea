"""The Django app: label `sharding`, at any place in INSTALLED_APPS."""

from django.apps import AppConfig


class ShardingConfig(AppConfig):
    """Cluster sharding."""

    name = "sharding_app"
    label = "sharding"
    verbose_name = "Sharding"
