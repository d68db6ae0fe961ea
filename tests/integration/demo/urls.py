"""The demo's addresses, as `project.settings.demo` has them."""

from django.urls import include, path

urlpatterns = [path("", include("project.urls")), path("", include("project.auctions.urls"))]
