"""The demo's addresses, and those of a lot that is sold."""

from django.urls import include, path

from tests.browser.app import views

urlpatterns = [
    path("lots/<str:number>/", views.lot),
    path("lots/<str:number>/bids/", views.bid),
    path("", include("project.urls")),
]
