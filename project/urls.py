"""The demo site's pages: the admin, and the shop."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("project.shop.urls")),
]
