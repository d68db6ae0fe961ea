"""The auction house: the rules of its entities, the list of its projection, and its pages."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client, override_settings

from sharding_app import Failure, Rejected
from sharding_app.entities.projections import projections
from sharding_app.entities.registry import registry
from sharding_app.processes.control import NoAnswer, NodeProcess, Reply, Request
from sharding_app.testing import ClusterThread, given, project
from tests.support.live import until

LATER = datetime.now(UTC) + timedelta(days=1)


def soon() -> datetime:
    """A closing that a bid of now moves."""
    return datetime.now(UTC) + timedelta(seconds=14)


@pytest.fixture(scope="module", autouse=True)
def house() -> Iterator[ModuleType]:
    """The module of entities. What it declares is forgotten at the end."""
    with registry.isolated(), projections.isolated():
        from project.auctions import entities
        from project.auctions import projections as listing

        assert listing.OpenAuctions.source is entities.Auction
        yield entities


def test_a_bid_holds_its_credit_until_it_has_won_or_lost(house: Any) -> None:
    ann = given(entity_id="ann").when(house.Bidder.bid, "vase", 700_000)
    ann.then(reply=1, events=[house.Held(1, "vase", 700_000)],
             sent=[house.Auction.ref("vase").bid.bind("ann", 1, 700_000)])  # fmt: skip
    ann.when(house.Bidder.bid, "lamp", 300_001).then_raises(Rejected, "free credit is 3,000.00", events=[])
    ann.when(house.Bidder.bid, "lamp", 300_000).then(reply=2)
    why = Failure("auctions.Auction", "vase", "bid", {"by": "ann", "number": 1, "cents": 700_000},
                  "rejected", "over", "the auction is over.")  # fmt: skip
    ann.when(house.Bidder.refused, why).then(events=[house.Released(1, "the auction is over.")])
    ann.when(house.Bidder.release, 1).then(events=[])
    ann.when(house.Bidder.pay, 2).then(events=[house.Paid(2)])
    ann.when(house.Bidder.account).then(
        reply={"credit": 700_000, "held": 0, "bids": 2, "news": "You have won an auction for 3,000.00."}
    )


def test_a_higher_bid_releases_the_former_one_and_a_late_one_moves_the_closing(house: Any) -> None:
    calm = given(house.Opened("A vase", 1000, LATER, False), entity_id="vase")
    vase = calm.when(house.Auction.bid, "ann", 1, 999)
    vase.then_raises(Rejected, "bid at least 10.00", events=[])
    vase.when(house.Auction.bid, "ann", 1, 1000).then(events=[house.BidPlaced("ann", 1, 1000)], sent=[])
    vase.when(house.Auction.bid, "bob", 4, 1099).then_raises(Rejected, "bid at least 11.00", events=[])
    vase.when(house.Auction.bid, "bob", 4, 1100).then(
        events=[house.BidPlaced("bob", 4, 1100)], sent=[house.Bidder.ref("ann").release.bind(1)], timers={}
    )
    late = given(house.Opened("A vase", 1000, soon(), False), entity_id="vase")
    late.when(house.Auction.bid, "ann", 1, 1000).then(
        timers={"closing": house.Auction.ref("vase").close.bind()}
    )
    last = soon()
    moved = (house.Opened("A vase", 1000, last - house.LAST_CALL, False), house.ClosingMoved(last))
    given(*moved, entity_id="vase").when(house.Auction.bid, "ann", 1, 1000).then(
        events=[house.BidPlaced("ann", 1, 1000)], timers={}
    )
    past = given(house.Opened("A vase", 1000, datetime.now(UTC), False), entity_id="vase")
    past.when(house.Auction.bid, "ann", 1, 1000).then_raises(Rejected, "the auction is over", events=[])


def test_a_timer_closes_an_auction_and_the_leader_pays(house: Any) -> None:
    close = house.Auction.ref("lot-1").close.bind()
    lot = given(entity_id="lot-1").when(house.Auction.open, "A vase", 1000, 60, by_house=True)
    lot.then(timers={"closing": close})
    lot.when(house.Auction.bid, "ann", 7, 5000).then(timers={"closing": close})
    lot.advance(timedelta(seconds=61)).then(
        events=[house.Closed("ann", 5000)],
        sent=[house.Bidder.ref("ann").pay.bind(7), house.House.the().over.bind("lot-1")],
        timers={},
    )
    lot.when(house.Auction.bid, "bob", 1, 9000).then_raises(Rejected, "the auction is over")
    lot.when(house.Auction.close).then(events=[])
    given(entity_id="none").when(house.Auction.bid, "ann", 1, 1).then_raises(Rejected, "no such auction")


def test_the_house_opens_auctions_while_few_are_open(house: Any) -> None:
    scene = given().when(house.House.tend)
    scene.then(events=[house.Offered(1, "lot-1")])
    for number in range(2, settings.AUCTIONS_OPEN + 1):
        scene.when(house.House.tend).then(events=[house.Offered(number, f"lot-{number}")])
    scene.when(house.House.tend).then(events=[], sent=[])
    scene.when(house.House.over, "lot-2").then(events=[house.Over("lot-2")])
    scene.when(house.House.over, "lot-2").then(events=[])
    scene.when(house.House.tend).then(events=[house.Offered(7, "lot-7")])


@pytest.fixture
def pages(house: Any) -> Iterator[None]:
    """The pages, and the table of the list."""
    from project.auctions.models import OpenAuction

    templates = deepcopy(settings.TEMPLATES)
    templates[0]["OPTIONS"]["libraries"] = {"money": "project.auctions.templatetags.money"}
    with connection.schema_editor() as editor:
        editor.create_model(OpenAuction)
    with override_settings(ROOT_URLCONF=f"{__package__}.urls", TEMPLATES=templates):
        yield


@pytest.mark.django_db
@pytest.mark.usefixtures("pages")
def test_the_list_is_of_open_auctions(house: Any) -> None:
    from project.auctions.models import OpenAuction
    from project.auctions.projections import OpenAuctions

    opened = house.Opened("A vase", 1000, soon(), False)
    project(
        OpenAuctions, ("vase", opened), ("lamp", opened), ("vase", house.BidPlaced("ann", 1, 1200)),
        ("vase", house.ClosingMoved(LATER)), ("lamp", house.Closed("", 1000)),
    )  # fmt: skip
    assert list(OpenAuction.objects.values_list("id", "price", "closes_at")) == [("vase", 1200, LATER)]


@pytest.mark.django_db
@pytest.mark.usefixtures("pages")
def test_an_auction_is_opened_and_takes_bids(house: Any, sharding_cluster: ClusterThread) -> None:
    client = Client()
    assert client.get("/").status_code == 200
    assert client.get("/favicon.ico").headers["Location"] == "/static/auctions/icon.svg"
    refused = client.post("/", {"title": "A <b>vase", "start": "ten", "minutes": "2"})
    assert (refused.status_code, b"Give an amount such as 12.50" in refused.content) == (400, True)
    assert client.post("/", {"title": "A vase", "start": "10", "minutes": "61"}).status_code == 400
    page = client.post("/", {"title": "A <b>vase", "start": "10", "minutes": "2"}).headers["Location"]
    assert b"A &lt;b&gt;vase" in client.get(page).content
    assert client.post(page, {"name": "ann", "amount": "10000.01"}).status_code == 400
    placed = client.post(page, {"name": "ann", "amount": "12.5"})
    assert placed.headers["Location"] == f"{page}?by=ann"
    assert house.Bidder.ref("ann").sync.account() == {
        "credit": 1_000_000,
        "held": 1250,
        "bids": 1,
        "news": "",
    }
    assert b"ann</h2>" in client.get(f"{page}?by=ann").content
    assert client.get("/auctions/unknown/").status_code == 404
    assert client.get("/auctions/%00/").status_code == 404


@pytest.mark.django_db
@pytest.mark.usefixtures("pages")
def test_the_load_is_bounded_and_each_acknowledged_bid_counts_once(
    house: Any, sharding_cluster: ClusterThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    from project.auctions import load

    monkeypatch.setattr(load, "open_auctions", lambda: [("vase", 1000)])
    house.Auction.ref("vase").sync.open("A vase", 1000, 60)
    client = Client()
    for wrong in ("", "-1", "101", "1e1"):
        assert client.post("/load/", {"rate": wrong}).status_code == 400
    assert client.post("/load/", {"rate": "100"}).status_code == 302
    run = load.generator.run
    try:
        until(lambda: run.acknowledged >= 5, 60, "bids are acknowledged")
        assert b"100 bids per second are wanted" in client.get("/load/").content
    finally:
        client.post("/load/", {"rate": "0"})
    until(lambda: not run.under_way, 60, "all are answered")
    assert sum(house.Bidder.ref(each).sync.account()["bids"] for each in run.bots) == run.acknowledged
    assert run.unknown == 0


class Parent:
    """Stands for the process that has started the nodes."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.nodes = (NodeProcess("node-1", 41, "up"), NodeProcess("node-2", 42, "starting"))

    def ask(self, request: Request) -> Reply:
        self.asked.append(request)
        if request.action == "add":
            raise NoAnswer("runcluster has not answered")
        if request.action == "kill" and not request.anyway:
            return Reply("last", "node-1 is the last <node>.", self.nodes)
        return Reply("done", f"{request.node} <is> asked: {request.action}.", self.nodes)


@pytest.mark.django_db
@pytest.mark.usefixtures("pages")
def test_the_cluster_is_steered_by_buttons_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    from project.auctions import views

    parent = Parent()
    monkeypatch.setattr(views, "control", lambda: parent)
    client = Client()
    page = client.get("/cluster/").content
    assert page.count(b'form="steer"') == 6, "three buttons for each node"
    done = client.post("/cluster/", {"freeze": "node-2", "seconds": "5"})
    assert b"node-2 &lt;is&gt; asked: freeze." in client.get(done.headers["Location"]).content
    assert parent.asked[-2] == Request("freeze", "node-2", 5.0)
    assert b"forged" not in client.get("/cluster/?said=forged").content
    last = client.post("/cluster/", {"kill": "node-1", "seconds": "5"})
    assert (last.status_code, b"the last &lt;node&gt;" in last.content) == (409, True)
    assert b'<button name="kill" value="node-1">Kill node-1 all the same' in last.content
    assert client.post("/cluster/", {"kill": "node-1", "anyway": "1"}).status_code == 302
    assert client.post("/cluster/", {"add": "1"}).status_code == 503
    asked = len(parent.asked)
    for wrong in ({}, {"freeze": "node-1", "seconds": "31"}, {"freeze": "node-1"}, {"look": "node-1"}):
        assert client.post("/cluster/", wrong).status_code == 400
    assert {each.action for each in parent.asked[asked:]} == {"look"}, "only the page itself asks"


@pytest.mark.django_db
@pytest.mark.usefixtures("pages")
def test_no_page_of_another_site_steers_and_without_a_parent_the_page_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from project.auctions import views

    parent = Parent()
    page = Client().get("/cluster/").content
    assert b'form="steer"' not in page
    assert b"where manage.py runcluster has started them" in page
    assert Client().post("/cluster/", {"kill": "node-1"}).status_code == 400
    monkeypatch.setattr(views, "control", lambda: parent)
    wanted = {"kill": "node-1", "anyway": "1"}
    assert Client(enforce_csrf_checks=True).post("/cluster/", wanted).status_code == 403
    assert Client().post("/cluster/", wanted, headers={"host": "rebound.example"}).status_code == 400
    assert parent.asked == []


def test_bids_of_people_count_from_the_first_acknowledged_one_on() -> None:
    from project.auctions import load

    run = load.Run()
    run.acknowledge("ann", 8)
    run.acknowledge("ann", 7)
    run.acknowledge(run.bots[0], 1)
    run.acknowledge()
    assert (run.acknowledged, run.look().people) == (4, {"ann": 6})
    for number in range(2 * load.MOST_PEOPLE):
        run.acknowledge(f"person-{number}", 1)
    assert len(run.people) == load.MOST_PEOPLE
    assert run.acknowledged == 3 + load.MOST_PEOPLE
