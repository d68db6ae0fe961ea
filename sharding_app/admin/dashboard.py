"""The dashboard, as the admin of the model `Cluster`."""

from sharding_app.admin.model_admins import ReadOnlyAdmin


class ClusterAdmin(ReadOnlyAdmin):
    list_display = ("cluster_id", "created_at")
