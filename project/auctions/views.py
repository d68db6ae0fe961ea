"""The pages: the list of open auctions, one auction, the load, and the cluster. Open them twice to
see them move.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode
from zlib import crc32

from django.core import signing
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from project.auctions import cluster as presenter
from project.auctions.entities import WELCOME_CENTS, Auction, Bidder
from project.auctions.load import MOST_PER_SECOND, PAUSE_SECONDS, generator
from project.auctions.models import OpenAuction
from sharding_app import InvalidEntityId, Rejected, ShardingError
from sharding_app.operations.cache import Unreachable, collector
from sharding_app.processes.control import (
    Action,
    ControlClient,
    NoAnswer,
    NodeProcess,
    Reply,
    Request,
    control,
)

MAX_NAME = 24
MAX_TITLE = 60
MAX_MINUTES = 60
LISTED = 24
BID_SECONDS = 5
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
    amount = cents(request.POST.get("amount", ""))
    # Sent again under its id, it takes effect once, whichever node is killed meanwhile.
    bidder = Bidder.ref(by, command_id=secrets.token_hex(8), timeout=BID_SECONDS)
    for last in (False, False, True):
        run = generator.run
        try:
            run.acknowledge(by, bidder.sync.bid(name, amount))
            break
        except Rejected:
            raise
        except ShardingError:
            if last:
                run.give_up()
                raise
            time.sleep(PAUSE_SECONDS)
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


@require_safe
def icon(request: HttpRequest) -> HttpResponse:
    """Lead a browser to the icon that it looks for at pages that name none, such as the admin's."""
    return HttpResponseRedirect(static("auctions/icon.svg"))


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
            return HttpResponseRedirect(reverse("cluster" if "at_cluster" in request.POST else "load"))
        error = f"Ask for 0 to {MOST_PER_SECOND} bids per second."
    context = {**_bids(), "error": error}
    return render(request, "auctions/load.html", context, status=400 if error else 200)


def _bids() -> dict[str, Any]:
    # The bids that are acknowledged by now are in the journal by now, so it is read later.
    run = generator.run.look()
    journal: int | None
    try:
        journal = run.in_journal()
    except DatabaseError:
        journal = None
    chart = presenter.chart(run.last_seconds())
    key = _key(run, journal, chart)
    return {"run": run, "journal": journal, "most": MOST_PER_SECOND, "chart": chart, "bids_key": key}


def _key(*shown: object) -> str:
    """Return a text that is another one once something else is shown."""
    return f"{crc32(repr(shown).encode()):x}"


# -- The cluster -----------------------------------------------------------------------------------

WHY_NOT = (
    "Nodes are killed, frozen, drained and added here where manage.py runcluster has started them "
    "together with this site, and DEBUG is on."
)
FREEZE_SECONDS = ("5", "2", "10", "30")
ACTIONS: tuple[Action, ...] = ("kill", "freeze", "drain", "add")
STATUS = {"last": 409, "gone": 404, "busy": 409, "full": 409, "invalid": 400}
SAID_SECONDS = 60
SALT = "auctions.cluster"


@require_http_methods(["GET", "POST"])
def cluster(request: HttpRequest) -> HttpResponse:
    """Show the cluster, and pass on what its buttons ask of the process that runs the nodes.

    The site is bound to the loopback there, takes requests for names of this machine alone
    (ALLOWED_HOSTS), and each POST has a token that a page of another site does not have.
    """
    way, status = control(), 200
    told: dict[str, object] = {"error": ""}
    processes: Sequence[NodeProcess] = ()
    try:
        if request.method == "POST":
            reply = _steer(way, request.POST)
            if reply.code == "done":
                said = urlencode({"said": signing.dumps(reply.text, salt=SALT)})
                return HttpResponseRedirect(f"{request.path}?{said}")
            told, status = {"error": reply.text}, STATUS[reply.code]
            if reply.code == "last":
                told |= {"again": _wanted(request.POST), "seconds": request.POST.get("seconds", "")}
        if way is not None:
            processes = way.ask(Request("look")).nodes
    except NoAnswer as error:
        told = {"error": str(error)}
        status = 503 if request.method == "POST" else 200
    context = {**_seen(processes), **_bids(), **told, "said": _said(request)}
    context |= {"why_not": "" if way else WHY_NOT, "freeze_seconds": FREEZE_SECONDS}
    return render(request, "auctions/cluster.html", context, status=status)


def _wanted(asked: QueryDict) -> tuple[Action, str] | None:
    """Return what the clicked button stands for: an action, and a node."""
    return next(((each, str(asked[each])[:100]) for each in ACTIONS if each in asked), None)


def _steer(way: ControlClient | None, asked: QueryDict) -> Reply:
    if way is None:
        return Reply("invalid", WHY_NOT)
    seconds, wanted = asked.get("seconds", ""), _wanted(asked)
    if wanted is None or (wanted[0] == "freeze" and seconds not in FREEZE_SECONDS):
        return Reply("invalid", f"Choose a button, and one of these times: {', '.join(FREEZE_SECONDS)} s.")
    frozen = float(seconds) if wanted[0] == "freeze" else 0.0
    return way.ask(Request(*wanted, frozen, anyway="anyway" in asked))


def _said(request: HttpRequest) -> str:
    """Return the answer to the last click. Only this site can have written it into the address."""
    try:
        return str(signing.loads(request.GET.get("said", ""), salt=SALT, max_age=SAID_SECONDS))
    except signing.BadSignature:
        return ""


def _seen(processes: Sequence[NodeProcess]) -> dict[str, Any]:
    try:
        look = collector.look()
        parts = presenter.nodes(look, processes), presenter.shards(look), presenter.events(look)
    except (Unreachable, DatabaseError) as error:
        parts, trouble = ([], [], []), str(error)
    else:
        trouble = look.trouble
    nodes, shards, events = parts
    return {
        "nodes": nodes, "shards": shards, "events": events, "trouble": trouble,
        "nodes_key": _key(nodes, trouble), "shards_key": _key(shards), "events_key": _key(events),
    }  # fmt: skip
