"""Two views on one cart. Neither locks a row: the cart itself handles one command at a time.

curl -X POST -d sku=book -d quantity=2 http://127.0.0.1:8000/carts/alice/
curl http://127.0.0.1:8000/carts/alice/
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from project.shop.entities import Cart
from sharding_app import Rejected


def home(request: HttpRequest) -> HttpResponse:
    """Show what there is to try."""
    return render(request, "project/home.html")


def _order(request: HttpRequest) -> tuple[str, int]:
    quantity = request.POST.get("quantity", "1")
    return request.POST.get("sku", ""), int(quantity) if quantity.lstrip("-").isdecimal() else 0


@csrf_exempt  # the demo binds to the loopback and is tried with curl; there is no session behind a cart
@require_http_methods(["GET", "POST"])
async def cart(request: HttpRequest, customer: str) -> JsonResponse:
    """Read a cart, or add to it, in async code."""
    basket = Cart.ref(customer)
    if request.method == "GET":
        return JsonResponse({"customer": customer, "total": await basket.total()})
    try:
        count = await basket.add(*_order(request))
    except Rejected as rejected:
        return JsonResponse({"error": str(rejected)}, status=400)
    return JsonResponse({"customer": customer, "count": count})


@csrf_exempt  # as above
@require_http_methods(["GET", "POST"])
def cart_in_sync_code(request: HttpRequest, customer: str) -> JsonResponse:
    """Read a cart, or add to it, in sync code."""
    basket = Cart.ref(customer).sync
    if request.method == "GET":
        return JsonResponse({"customer": customer, "total": basket.total()})
    try:
        count = basket.add(*_order(request))
    except Rejected as rejected:
        return JsonResponse({"error": str(rejected)}, status=400)
    return JsonResponse({"customer": customer, "count": count})
