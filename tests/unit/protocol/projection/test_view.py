"""A view names the transactions that were seen, and advances by pages."""

from hypothesis import given
from hypothesis import strategies as st

from sharding_app.protocol.projection.slices import SLICES, part_of, slice_of, slices_of
from sharding_app.protocol.projection.view import View

XIDS = range(1, 40)


@st.composite
def views(draw: st.DrawFn, *, after: View | None = None) -> View:
    """A view; with `after`, one that is taken later."""
    least = 1 if after is None else after.xmax
    xmax = draw(st.integers(least, 35))
    running = draw(st.frozensets(st.integers(1, max(1, xmax - 1)), max_size=6)) if xmax > 1 else frozenset()
    if after is not None:
        running = frozenset(each for each in running if not after.sees(each))
    return View(min(running, default=xmax), xmax, running)


@given(st.data())
def test_a_page_advances_by_what_it_has_read_and_no_more(data: st.DataObject) -> None:
    seen = data.draw(views())
    later = data.draw(views(after=seen))
    bound = data.draw(st.none() | st.integers(1, later.xmax))
    found = seen.upto(later, bound)
    for xid in XIDS:
        read = later.sees(xid) and (bound is None or xid < bound)
        assert found.sees(xid) == (seen.sees(xid) or read)
    assert View.parse(str(found)) == found
    assert all(found.sees(xid) for xid in range(1, found.xmin))


def test_slices_are_divided_among_all_parts() -> None:
    for parts in range(1, SLICES + 1):
        ranges = [slices_of(part, parts) for part in range(parts)]
        assert [each for first, last in ranges for each in range(first, last + 1)] == list(range(SLICES))
        for part, (first, last) in enumerate(ranges):
            assert {part_of(each, parts) for each in range(first, last + 1)} == {part}


def test_the_slice_of_an_id_never_changes() -> None:
    assert [slice_of(each) for each in ("alice", "bob", "ä")] == [43, 1, 51]
