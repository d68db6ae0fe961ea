"""The auction house's addresses."""

from django.urls import path

from project.auctions import views

urlpatterns = [
    path("", views.house, name="home"),
    path("cluster/", views.cluster, name="cluster"),
    path("favicon.ico", views.icon),
    path("load/", views.load, name="load"),
    path("auctions/<str:name>/", views.auction, name="auction"),
]
