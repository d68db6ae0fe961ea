"""Puts the dashboard and the tables on an admin site."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite, ModelAdmin
from django.db.models import Model

from sharding_app.admin.cluster_admin import ClusterAdmin
from sharding_app.admin.model_admins import admins
from sharding_app.models import Cluster


def register(site: AdminSite) -> None:
    """Add the dashboard and the read-only tables to an admin site; what it has already stays."""
    shown: dict[type[Model], type[ModelAdmin[Any]]] = {Cluster: ClusterAdmin, **admins()}
    for model, model_admin in shown.items():
        if not site.is_registered(model):
            _register(site, model, model_admin)


def _register(site: AdminSite, model: type[Model], model_admin: type[ModelAdmin[Any]]) -> None:
    """Django's own `register` refuses keys of several columns: its pages take a key for one value.
    Ours do not.
    """
    if model._meta.is_composite_pk:
        site._registry[model] = model_admin(model, site)
    else:
        site.register(model, model_admin)
