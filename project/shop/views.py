"""Two views on one cart. Neither locks a row: the cart itself handles one command at a time.

curl -X POST -d sku=book -d quantity=2 http://127.0.0.1:8000/carts/alice/
curl http://127.0.0.1:8000/carts/alice/
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from project.shop.entities import Cart
from sharding_app import Rejected, ShardingError
from sharding_app.errors import InvalidCall, InvalidEntityId

View = TypeVar("View", bound=Callable[..., Any])

MAX_SKU = 64
_QUANTITY = re.compile(r"-?[0-9]{1,6}")


def _order(request: HttpRequest) -> tuple[str, int]:
    """Read what is ordered: whatever a stranger may send. Raises Rejected."""
    sku, quantity = request.POST.get("sku", ""), request.POST.get("quantity", "1")
    if not 0 < len(sku) <= MAX_SKU or not sku.isprintable():
        raise Rejected(f"sku must be a text of 1 to {MAX_SKU} printable characters")
    if not _QUANTITY.fullmatch(quantity):
        raise Rejected("quantity must be a whole number of at most 6 digits")
    return sku, int(quantity)


def _refusal(error: ShardingError) -> JsonResponse:
    """Tell what was wrong with the request, or that the shop cannot answer now."""
    asked_wrongly = isinstance(error, Rejected | InvalidCall | InvalidEntityId)
    return JsonResponse({"error": str(error)}, status=400 if asked_wrongly else 503)


def _closed(user: Any, customer: str) -> JsonResponse | None:
    """Refuse a customer who is not logged in, and one who asks for another's cart. None: go on."""
    if not user.is_authenticated:
        return JsonResponse({"error": "log in first"}, status=401)
    if customer != user.get_username():
        return JsonResponse({"error": "this is another customer's cart"}, status=403)
    return None


def _door(view: View) -> View:
    """Take the demo's calls by curl: there is no session behind a cart, and so nothing to forge."""
    return view if settings.SHOP_NEEDS_LOGIN else csrf_exempt(view)


@_door
@require_http_methods(["GET", "POST"])
async def cart(request: HttpRequest, customer: str) -> JsonResponse:
    """Read a cart, or add to it, in async code."""
    if settings.SHOP_NEEDS_LOGIN and (refused := _closed(await request.auser(), customer)):
        return refused
    try:
        basket = Cart.ref(customer)
        if request.method == "GET":
            return JsonResponse({"customer": customer, "total": await basket.total()})
        return JsonResponse({"customer": customer, "count": await basket.add(*_order(request))})
    except ShardingError as error:
        return _refusal(error)


@_door
@require_http_methods(["GET", "POST"])
def cart_in_sync_code(request: HttpRequest, customer: str) -> JsonResponse:
    """Read a cart, or add to it, in sync code."""
    if settings.SHOP_NEEDS_LOGIN and (refused := _closed(request.user, customer)):
        return refused
    try:
        basket = Cart.ref(customer).sync
        if request.method == "GET":
            return JsonResponse({"customer": customer, "total": basket.total()})
        return JsonResponse({"customer": customer, "count": basket.add(*_order(request))})
    except ShardingError as error:
        return _refusal(error)
