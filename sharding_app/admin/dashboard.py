from django.contrib.admin import ModelAdmin


class ClusterAdmin(ModelAdmin):  # type: ignore[type-arg]
    pass
