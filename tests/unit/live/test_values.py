"""What the first look shows is what the script shows: the same texts, and no changed number."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from sharding_app.live.values import field_of, json_of, plain, text_of


@dataclass
class Bid:
    by: str
    amount: Decimal


def test_a_value_becomes_json_without_losing_anything() -> None:
    value = {
        "best": Bid("ann", Decimal("10.50")), "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), 7: 2**53, "cents": 2**53 - 1,
        "rate": float("nan"), "text": "</script>\u2028", "on": True,
    }  # fmt: skip
    found = plain(value)
    assert found == {
        "best": {"by": "ann", "amount": "10.50"}, "at": "2026-01-02T00:00:00Z", "7": "9007199254740992",
        "cents": 9007199254740991, "rate": None, "text": "</script>\u2028", "on": True,
    }  # fmt: skip
    assert json.loads(json_of(found)) == found


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", {"bids": [{"by": "ann"}], "0": 1}), ("bids.0.by", "ann"), ("0", 1), ("bids.1", None), ("bids.-1", None),
        ("bids.length", None), ("bids.0.by.upper", None), ("__class__", None), ("bids.²", None),
    ],
)  # fmt: skip
def test_a_field_is_a_part_of_the_value_and_nothing_else(path: str, found: Any) -> None:
    assert field_of({"bids": [{"by": "ann"}], "0": 1}, path) == found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""), ("<b>", "<b>"), (7, "7"), (True, "true"), ([1, "a"], '[1,"a"]'), (0.0, "0"), (-0.0, "0"), (1.0, "1"),
        (-2.5, "-2.5"), (0.1, "0.1"), (1e20, "100000000000000000000"), (1e21, "1e+21"), (1.5e-7, "1.5e-7"),
        (0.000001, "0.000001"), (123456.789, "123456.789"), (5e-324, "5e-324"),
    ],
)  # fmt: skip
def test_texts_are_those_of_the_script(value: Any, text: str) -> None:
    assert text_of(value) == text
