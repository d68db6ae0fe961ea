"""The shop as a Django app."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class ShopConfig(AppConfig):
    """Labelled `shop`, so that its carts are `shop.Cart`."""

    name = "project.shop"
    label = "shop"

    def ready(self) -> None:
        """Give the demo its administrator once the tables are there, and tell of it when the
        cluster is up.
        """
        from project.shop.administrator import after_migrate
        from project.shop.hints import first_steps
        from sharding_app.management.hints import cluster_started

        post_migrate.connect(after_migrate, dispatch_uid="shop.administrator")
        cluster_started.connect(first_steps, dispatch_uid="shop.hints")
