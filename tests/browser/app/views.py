"""A live page, and bids from outside of it."""

from __future__ import annotations

from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.csrf import csrf_exempt

from tests.browser.app.entities import Lot

HOME = (
    "SELECT n.name FROM sharding_shard s JOIN sharding_node n ON n.incarnation = s.home"
    " JOIN sharding_event e ON e.type_id = s.type_id AND e.shard = s.shard"
    " JOIN sharding_type t ON t.id = e.type_id WHERE t.name = %s AND e.entity = %s LIMIT 1"
)


def lot(request: HttpRequest, number: str) -> HttpResponse:
    """Show a lot and follow it."""
    return render(request, "weather/lot.html", {"lot": Lot.ref(number)})


@csrf_exempt
def bid(request: HttpRequest, number: str) -> JsonResponse:
    """Bid; tell which node is the lot's home."""
    price = Lot.ref(number).sync.bid(request.POST["by"], int(request.POST["price"]))
    with connection.cursor() as cursor:
        cursor.execute(HOME, ["weather.Lot", number])
        found = cursor.fetchone()
    return JsonResponse({"price": price, "home": found[0] if found else ""})
