"""The page of a lot: it shows the bids and takes one. Open it twice to see it move."""

from __future__ import annotations

from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from project.auctions.entities import Lot
from sharding_app import InvalidEntityId, Rejected, ShardingError

MAX_NAME = 24
MAX_AMOUNT = 1_000_000


def _bid(request: HttpRequest) -> tuple[str, int]:
    """Read a bid: whatever a stranger may send. Raises Rejected."""
    user = request.user
    by = user.get_username() if user.is_authenticated else request.POST.get("by", "").strip()
    if not 0 < len(by) <= MAX_NAME or not by.isprintable():
        raise Rejected(f"Give a name of 1 to {MAX_NAME} characters.")
    amount = request.POST.get("amount", "")
    if not (amount.isascii() and amount.isdigit() and len(amount) <= 7 and 0 < int(amount) <= MAX_AMOUNT):
        raise Rejected(f"Bid a whole number from 1 to {MAX_AMOUNT:,}.")
    return by, int(amount)


@require_http_methods(["GET", "POST"])
def lot(request: HttpRequest, name: str) -> HttpResponse:
    """Show a lot, which the page then follows, and take bids."""
    if settings.SHOP_NEEDS_LOGIN and not request.user.is_authenticated:
        return redirect_to_login(request.get_full_path(), login_url="admin:login")
    try:
        ref = Lot.ref(name)
    except InvalidEntityId:
        return HttpResponse("This is no name of a lot.\n", status=404, content_type="text/plain")
    error, status = "", 200
    try:
        if request.method == "POST":
            by, amount = _bid(request)
            ref.sync.bid(by, amount)
            return HttpResponseRedirect(f"{request.path}?{urlencode({'by': by})}")
    except Rejected as refused:
        error, status = refused.message, 400
    except ShardingError:
        error, status = "The auction cannot answer now. Try again.", 503
    by = request.POST.get("by") or request.GET.get("by", "")
    context = {"lot": ref, "name": name, "error": error, "by": by[:MAX_NAME]}
    return render(request, "project/auction.html", context, status=status)
