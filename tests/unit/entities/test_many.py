"""Pages and pieces have limits."""

from sharding_app.entities.many import PIECE_BYTES, piece_size
from sharding_app.protocol.listing import IdPage, page_of


def test_a_page_is_bounded_in_bytes() -> None:
    long = [f"{number:04}" + "x" * 500 for number in range(1000)]
    page = page_of(long)
    assert page.more
    assert 200 < len(page.ids) < 300
    assert page_of(["a"]) == IdPage(["a"], more=False)


def test_a_piece_is_bounded_in_bytes() -> None:
    assert piece_size(1000, 10) == 1000
    assert piece_size(1000, PIECE_BYTES // 2) == 2
    assert piece_size(1000, PIECE_BYTES * 2) == 1
