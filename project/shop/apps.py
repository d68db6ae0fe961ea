"""The shop as a Django app."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class ShopConfig(AppConfig):
    """Labelled `shop`, so that its carts are `shop.Cart`."""

    name = "project.shop"
    label = "shop"

    def ready(self) -> None:
        """Give the demo its administrator once the tables are there."""
        from project.shop.administrator import after_migrate

        post_migrate.connect(after_migrate, dispatch_uid="shop.administrator")
