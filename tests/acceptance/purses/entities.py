"""A purse with snapshots, remembered ids, timers and messages; and a person who owns it."""

from datetime import timedelta

from sharding_app import EventSourced, Personal, ShardingSettings, applies, command, event


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


@event
class Named:
    name: Personal[str]


class Owner(EventSourced, name="purses.Owner"):
    """A person."""

    erased_with_subject = True
    settings = ShardingSettings(number_of_shards=8)

    @command
    def register(self, name: str) -> None:
        self.persist(Named(Personal(name, self.entity_id)))
        self.schedule(
            self.ref.rename.bind(Personal(name, self.entity_id)), key="rename", after=timedelta(days=9)
        )

    @command
    def rename(self, name: Personal[str]) -> None:
        self.persist(Named(name))

    @applies(Named)
    def on_named(self, happened: Named) -> None: ...
