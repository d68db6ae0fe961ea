"""The demo site's pages: admin, shop, auction house, and those for probes and Prometheus."""

from django.apps import apps
from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("sharding/", include("sharding_app.http.urls")),
    path("", include("project.shop.urls")),
]
if apps.is_installed("project.auctions"):
    urlpatterns += [path("", include("project.auctions.urls"))]
