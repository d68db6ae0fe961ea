"""The dashboard, as the admin of the model `Cluster`: so it needs no address of its own, and works
on any admin site.
"""

from __future__ import annotations

from django.urls import URLPattern

from sharding_app.admin.model_admins import ReadOnlyAdmin


class ClusterAdmin(ReadOnlyAdmin):
    """Its list is the overview; the other pages stand behind it."""

    def get_urls(self) -> list[URLPattern]:
        # With the first address that is looked up, not with the app: see `admin.views`.
        from sharding_app.admin.views import Views

        return Views(self).urls()
