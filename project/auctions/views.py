"""The pages: the list of open auctions, and one auction. Open them twice to see them move."""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlencode

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from project.auctions.entities import WELCOME_CENTS, Auction, Bidder
from project.auctions.load import MOST_PER_SECOND, generator
from project.auctions.models import OpenAuction
from sharding_app import InvalidEntityId, Rejected, ShardingError

MAX_NAME = 24
MAX_TITLE = 60
MAX_MINUTES = 60
LISTED = 24
_AMOUNT = re.compile(r"([0-9]{1,5})(?:\.([0-9]{1,2}))?", re.ASCII)


def cents(text: str) -> int:
    """Read an amount that a stranger has typed. Raises Rejected."""
    found = _AMOUNT.fullmatch(text.strip())
    amount = int(found[1]) * 100 + int((found[2] or "").ljust(2, "0")) if found else 0
    if not 0 < amount <= WELCOME_CENTS:
        raise Rejected("Give an amount such as 12.50, up to 10000.")
    return amount


def _text(request: HttpRequest, field: str, most: int) -> str:
    found = request.POST.get(field, "").strip()
    if not 0 < len(found) <= most or not found.isprintable():
        raise Rejected(f"Give a {field} of 1 to {most} characters.")
    return found


def _open(request: HttpRequest) -> HttpResponse:
    title, start = _text(request, "title", MAX_TITLE), cents(request.POST.get("start", ""))
    minutes = request.POST.get("minutes", "")
    if not (
        minutes.isascii() and minutes.isdigit() and len(minutes) < 3 and 1 <= int(minutes) <= MAX_MINUTES
    ):
        raise Rejected(f"An auction lasts 1 to {MAX_MINUTES} minutes.")
    name = secrets.token_hex(4)
    Auction.ref(name).sync.open(title, start, 60 * int(minutes))
    return HttpResponseRedirect(reverse("auction", args=[name]))


@require_http_methods(["GET", "POST"])
def house(request: HttpRequest) -> HttpResponse:
    """List the open auctions, and open one."""
    error, status = "", 200
    try:
        if request.method == "POST":
            return _open(request)
    except Rejected as refused:
        error, status = refused.message, 400
    except ShardingError:
        error, status = "The house cannot answer now. Try again.", 503
    # A row goes when its auction has closed. One that could not close yet is late, and shown.
    since = timezone.now() - timedelta(minutes=5)
    rows = OpenAuction.objects.filter(closes_at__gt=since).order_by("closes_at")[:LISTED]
    lots = [(row.id, Auction.ref(row.id)) for row in rows]
    context = {"lots": lots, "key": " ".join(sorted(name for name, _ in lots)), "error": error}
    return render(request, "auctions/house.html", context, status=status)


def _bid(request: HttpRequest, name: str) -> HttpResponse:
    by = _text(request, "name", MAX_NAME)
    Bidder.ref(by).sync.bid(name, cents(request.POST.get("amount", "")))
    return HttpResponseRedirect(f"{request.path}?{urlencode({'by': by})}")


@require_http_methods(["GET", "POST"])
def auction(request: HttpRequest, name: str) -> HttpResponse:
    """Show an auction, which the page then follows, and take bids."""
    error, status = "", 200
    by = (request.POST.get("name") or request.GET.get("by", "")).strip()[:MAX_NAME]
    try:
        lot = Auction.ref(name)
        bidder = Bidder.ref(by) if by and by.isprintable() else None
    except InvalidEntityId:
        return _unknown()
    try:
        if request.method == "POST":
            return _bid(request, name)
        if lot.sync.board()["closes_at"] is None:
            return _unknown()
    except Rejected as refused:
        error, status = refused.message, 400
    except ShardingError:
        error, status = "The auction cannot answer now. Try again.", 503
    context = {"lot": lot, "name": name, "error": error, "by": by, "bidder": bidder}
    return render(request, "auctions/auction.html", context, status=status)


def _unknown() -> HttpResponse:
    return HttpResponse("There is no such auction.\n", status=404, content_type="text/plain")


@require_http_methods(["GET", "POST"])
def load(request: HttpRequest) -> HttpResponse:
    """Show what the load generator does, and ask for more or less of it."""
    error = ""
    if request.method == "POST":
        rate = request.POST.get("rate", "")
        if rate.isascii() and rate.isdigit() and len(rate) < 4 and int(rate) <= MOST_PER_SECOND:
            generator.ask(int(rate))
            return HttpResponseRedirect(request.path)
        error = f"Ask for 0 to {MOST_PER_SECOND} bids per second."
    run = generator.run
    # The bids that are acknowledged by now are in the journal by now, so it is read later.
    shown = replace(run)
    journal: int | None
    try:
        journal = run.in_journal()
    except DatabaseError:
        journal = None
    key = f"{shown.name} {shown.rate} {shown.acknowledged} {journal} {shown.under_way} {shown.again} {shown.refused}"
    context = {"run": shown, "journal": journal, "most": MOST_PER_SECOND, "key": key, "error": error}
    return render(request, "auctions/load.html", context, status=400 if error else 200)
