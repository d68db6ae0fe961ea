"""The demo site's pages: the admin, the shop, the auctions, and those for probes and Prometheus."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("sharding/", include("sharding_app.http.urls")),
    path("", include("project.auctions.urls")),
    path("", include("project.shop.urls")),
]
