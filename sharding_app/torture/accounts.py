"""`Account`: moves money to other accounts by durable messages, and sets durable timers.

Each step of a payment or of a timer is an event that names its token. So the journal alone shows
what took effect, how often, and in which order (`torture.audit`). Money is only moved: the total is
what was given from outside.

Importing this module registers nothing, as with `torture.entities`.
"""

from datetime import timedelta

from sharding_app import EventSourced, Failure, Rejected, ShardingSettings, applies, command, event, query
from sharding_app.torture import instances
from sharding_app.torture.withdrawn import withdrawn

ACCOUNTS = "sharding.TortureAccount"
SHARDS = 48
BEATS = 3
"""A repeating timer ends itself after this many."""
PASSIVATE_SECONDS = 1.0
"""Short: most accounts are not in memory when a message or a timer is for them."""


@event
class Step:
    """One step of a payment (`given`, `sent`, `received`, `confirmed`, `returned`) or of a timer
    (`set`, `unset`, `fired`; `repeats`, `beat`).
    """

    what: str
    token: str
    cents: int = 0
    "By which the balance changes."
    other: str = ""
    "The account that the money goes to or comes from."
    seconds: float = 0.0
    "From the setting of a timer until it is due, and of a repeating one between its times."


class Account(EventSourced, name=ACCOUNTS):
    """The money of an account."""

    cents: int = 0
    beats: dict[str, int]

    settings = ShardingSettings(number_of_shards=SHARDS, passivate_after_seconds=PASSIVATE_SECONDS)

    def __init__(self) -> None:
        self.number = instances.next_number()
        self.beats = {}

    # -- Payments ----------------------------------------------------------------------------------

    @command
    def give(self, token: str, cents: int) -> None:
        """Get money from outside: a durable message of no entity."""
        instances.handles(self, self.number)
        self.persist(Step("given", token, cents))

    @command
    def pay(self, token: str, to: str, cents: int, refused: bool) -> None:
        """Send money to another account. If that one is told to refuse it, it comes back."""
        instances.handles(self, self.number)
        self.persist(Step("sent", token, -cents, to))
        target = type(self).ref(to)
        self.send(target.collect, token, self.entity_id, cents, refused).reply_to(self.confirmed).on_failure(
            self.take_back
        )

    @command
    def collect(self, token: str, sender: str, cents: int, refused: bool) -> str:
        instances.handles(self, self.number)
        if refused:
            raise Rejected("the account refuses this payment")
        self.persist(Step("received", token, cents, sender))
        return token

    @command
    def confirmed(self, token: str) -> None:
        instances.handles(self, self.number)
        self.persist(Step("confirmed", token))

    @command
    def take_back(self, failure: Failure) -> None:
        instances.handles(self, self.number)
        given = failure.arguments
        self.persist(Step("returned", given["token"], given["cents"], failure.entity_id))

    # -- Timers ------------------------------------------------------------------------------------

    @command
    def set_timer(self, token: str, seconds: float) -> None:
        instances.handles(self, self.number)
        self.persist(Step("set", token, seconds=seconds))
        self.schedule(self.ref.fire.bind(token), key=token, after=seconds)

    @command
    def unset_timer(self, token: str) -> None:
        instances.handles(self, self.number)
        self.persist(Step("unset", token))
        self.cancel(token)

    @command
    def fire(self, token: str) -> None:
        instances.handles(self, self.number)
        self.persist(Step("fired", token))

    @command
    def set_repeating(self, token: str, seconds: float) -> None:
        instances.handles(self, self.number)
        self.persist(Step("repeats", token, seconds=seconds))
        every = timedelta(seconds=seconds)
        self.schedule(self.ref.beat.bind(token), key=token, every=every, missed="all")

    @command
    def beat(self, token: str) -> None:
        """Beat at each of the timer's times, and end it with the last one."""
        instances.handles(self, self.number)
        self.persist(Step("beat", f"{token}#{self.beats.get(token, 0) + 1}"))
        if self.beats[token] >= BEATS:
            self.cancel(token)

    @query
    def balance(self) -> int:
        instances.handles(self, self.number)
        return self.cents

    @applies(Step)
    def on_step(self, happened: Step) -> None:
        self.cents += happened.cents
        if happened.what == "beat":
            token = happened.token.partition("#")[0]
            self.beats[token] = self.beats.get(token, 0) + 1


ACCOUNT = withdrawn(Account)
