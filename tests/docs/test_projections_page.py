"""docs/projections.md, executed from top to bottom."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from sharding_app import wiring
from sharding_app.adapters.django import projections as control
from sharding_app.adapters.django.projecting import DjangoPart
from sharding_app.entities.projections import projections
from sharding_app.entities.registry import registry
from sharding_app.testing import project
from tests.docs.blocks import blocks
from tests.integration.adapters.django.projected import Writer, run
from tests.support.live import ROOT, until

PAGE = ROOT / "docs" / "projections.md"
TABLES = ("sharding_projection", "sharding_position", "sharding_filled", "sharding_held", "sharding_change")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The page in an app of the demo, with the tables of its models."""
    found: dict[str, Any] = {"__name__": "project.shop.projections_page"}
    known = dict(apps.all_models["shop"])
    with registry.isolated(), projections.isolated():
        for block in [each for each in blocks(PAGE) if each.language == "python"]:
            exec(compile(block.text, str(PAGE), "exec"), found)  # noqa: S102  (our own page)
        made = [found[each] for each in ("AuctionRow", "Bid", "AuctionRow2")]
        with connection.schema_editor() as editor:
            for model in made:
                editor.create_model(model)
        monkeypatch.setattr("sharding_app.entities.projections._make", control.DjangoControl)
        yield found
        with connection.schema_editor() as editor:
            for model in made:
                editor.delete_model(model)
        with connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {', '.join(TABLES)}")
    apps.all_models["shop"].clear()
    apps.all_models["shop"].update(known)
    apps.clear_cache()


@pytest.mark.django_db(transaction=True)
def test_the_page_runs(names: dict[str, Any], capsys: Any) -> None:
    names["test_a_bid_is_shown"]()
    names["OpenAuctions"]().clear()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_type (name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " VALUES ('docs.Auction', 'event sourced', 1, '', 'crc32-1', '', 'postgres') RETURNING id"
        )
        ((type_id,),) = cursor.fetchall()
        cursor.execute(
            "INSERT INTO sharding_shard (type_id, shard, epoch, home, step) VALUES (%s, 0, 1, 'n', 'home')",
            [type_id],
        )
    writer = Writer(dict(wiring.conninfo("default")), type_name="docs.Auction")
    writer.put("vase", "Opened", title="a vase")
    writer.put("vase", "BidPlaced", by="ann", amount=7)
    writer.put("lamp", "Opened", title="a lamp")
    writer.commit()
    wanted = ("shop.OpenAuctions:1", "shop.AllBids:1", "shop.OpenAuctions:2")
    found = {each: DjangoPart("default", projections.get(each)) for each in wanted}
    for part in found.values():
        run(part)
    writer.put("vase", "BidPlaced", by="bob", amount=9)
    writer.put("lamp", "Closed")
    writer.commit()
    writer.close()
    assert names["OpenAuctions"].live_version() is None

    def is_live() -> bool:
        for part in found.values():
            run(part)
            part.tidied()
        return bool(names["OpenAuctions"].live_version() == 2)

    # Transactions of other tests, on the same server, hold positions up.
    until(is_live, 60.0, "the new version is live")
    names["OpenAuctions"].caught_up_sync(names["Auction"].ref("vase"), timeout=0)
    assert list(names["AuctionRow"].objects.values_list("id", "price", "bids")) == [("vase", 9, 2)]
    assert list(names["Bid"].objects.order_by("number").values_list("by", flat=True)) == ["ann", "bob"]
    assert names["rows"]().get().id == "vase"
    names["mend"]()
    assert capsys.readouterr().out == ""
    names["OpenAuctions"].reset()
    assert not names["AuctionRow"].objects.exists()
    run(found["shop.OpenAuctions:1"])
    assert names["AuctionRow"].objects.get().price == 9
    project(names["AllBids"], ("jug", names["BidPlaced"]("cy", 1)), after=3)
    assert names["Bid"].objects.get(auction="jug").number == 4
