"""A purse with snapshots, remembered ids, timers and messages."""

from datetime import timedelta

from sharding_app import EventSourced, ShardingSettings, applies, command, event


@event
class Paid:
    amount: int


class Purse(EventSourced, name="purses.Purse"):
    settings = ShardingSettings(number_of_shards=8, snapshot_every=2, remember_entities=True)
    paid: int = 0

    @command
    def pay(self, amount: int) -> int:
        self.persist(Paid(amount))
        return self.paid

    @command
    def remind(self) -> None:
        """Set a timer that is far away."""
        self.persist(Paid(0))
        self.schedule(self.ref.pay.bind(1), key="reminder", after=timedelta(days=9))

    @applies(Paid)
    def on_paid(self, happened: Paid) -> None:
        self.paid += happened.amount
