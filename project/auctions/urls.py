"""The auctions' addresses."""

from django.urls import path

from project.auctions import views

urlpatterns = [path("auctions/<str:name>/", views.lot, name="lot")]
