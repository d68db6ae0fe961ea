"""It needs no table: a test of roles looks at the rights on the cluster's own."""

from sharding_app import Happened, Projection, on
from tests.acceptance.purses.entities import Paid, Purse


class Payments(Projection, name="followed.Payments"):
    source = Purse

    @on(Paid)
    def paid(self, happened: Happened[Paid]) -> None:
        """Pass it."""
