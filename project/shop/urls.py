"""The shop's addresses: the same cart from an async view and from a sync one."""

from django.urls import path

from project.shop import views

urlpatterns = [
    path("carts/<str:customer>/", views.cart, name="cart"),
    path("sync/carts/<str:customer>/", views.cart_in_sync_code, name="cart-sync"),
]
