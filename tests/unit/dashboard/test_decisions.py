"""Lines of the timeline: long lists of shards are told by their length, and can be unfolded."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from sharding_app.dashboard.presenters.trouble import decision_rows

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ODD = ",".join(str(number) for number in range(1, 101, 2))


@pytest.mark.parametrize(
    ("detail", "short"),
    [
        ("4 at n-a", None),
        ("1-4,7 from n-a to n-b, away for 3 ms at most", None),
        (f"{ODD} at n-a", "50 shards at node-a"),
        (
            f"{ODD},200-2999 from n-a to n-b, away for 3 ms at most",
            "2,850 shards from node-a to n-b, away for 3 ms at most",
        ),
        ("term 1", None),
        ("", None),
    ],
)
def test_a_long_list_is_told_by_its_length(detail: str, short: str | None) -> None:
    row = SimpleNamespace(id=1, at=NOW, term=1, action="shards_placed", subject="shop.Cart", detail=detail)
    (line,) = decision_rows([row], {"n-a": {"name": "node-a"}}, NOW)
    assert line.get("short") == short
    assert ("1, 3, 5" in line["detail"]) == (short is not None)
