"""`View`: the transactions that a reader has seen, as PostgreSQL writes a `pg_snapshot`.

A number for the place in the journal would pass over a transaction that took its number early and
commits late. A view names those that were under way, and they are looked for until they end.
"""

from typing import NamedTuple


class View(NamedTuple):
    """All transactions below `xmax` that were not running; all below `xmin` have ended."""

    xmin: int
    xmax: int
    running: frozenset[int] = frozenset()
    "Those from `xmin` on and below `xmax` that had not ended."

    @classmethod
    def parse(cls, text: str) -> "View":
        """Return the view that a text names: `xmin:xmax:running,...`."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, running.split(","))) if running else frozenset())

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.running)))}"

    def sees(self, xid: int) -> bool:
        """Tell whether that transaction had ended."""
        return xid < self.xmax and xid not in self.running

    def upto(self, later: "View", bound: int | None) -> "View":
        """Return what is seen once all transactions below `bound` that a later view sees are
        handled; without a bound, all that it sees.
        """
        if bound is None:
            return later
        xmax = max(self.xmax, bound)
        running = {each for each in self.running if each >= bound or not later.sees(each)}
        running |= {each for each in later.running if self.xmax <= each < xmax}
        # Below the later view's first one nothing runs, so only what is left out counts.
        return View(min(running, default=xmax), xmax, frozenset(running))
