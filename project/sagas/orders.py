"""Orders that book a room, take the money and send the tickets, or undo what they have done.

An order sends a message for each step, and learns from the answers how far it is. When a step
fails, it undoes the steps before it. Each answer is stored before the next message goes out, in the
same transaction, so an order goes on after any crash, and takes no step twice.

    place ──> booked ──> paid ──> shipped
      │          └──no money──> the room is released ──> cancelled
      └──the room is taken──────────────────────────────> cancelled
"""

from datetime import timedelta

from project.sagas.accounts import Account
from sharding_app import EventSourced, Failure, Rejected, applies, command, event, query

PATIENCE = timedelta(minutes=15)
"""Time for which a room is held for an order that is not paid."""


@event
class Placed:
    room: str
    account: str
    cents: int


@event
class Reached:
    step: str


@event
class Taken:
    by: str


class Room(EventSourced):
    """A room that one order has at a time."""

    order: str = ""

    @command
    def book(self, order: str) -> None:
        """Give the room to an order."""
        if self.order:
            raise Rejected("the room is taken", code="taken")
        self.persist(Taken(order))

    @command
    def release(self, order: str) -> None:
        """Take the room from an order. If that one does not have it, nothing changes."""
        if self.order == order:
            self.persist(Taken(""))

    @query
    def taken_by(self) -> str:
        """Return the order that has the room."""
        return self.order

    @applies(Taken)
    def on_taken(self, happened: Taken) -> None:
        self.order = happened.by


class Parcel(EventSourced):
    """The tickets of one order, on their way."""

    sent: int = 0

    @command
    def ship(self, to: str) -> str:
        """Send the tickets, and return the number to track them by."""
        self.persist(Taken(to))
        return f"{self.entity_id}-{self.sent}"

    @query
    def times_sent(self) -> int:
        """Return how often the tickets were sent: more than once would be a mistake."""
        return self.sent

    @applies(Taken)
    def on_taken(self, happened: Taken) -> None:
        self.sent += 1


class Order(EventSourced):
    """The saga."""

    room: str = ""
    account: str = ""
    cents: int = 0
    step: str = ""

    @command
    def place(self, room: str, account: str, cents: int) -> None:
        """Begin: book the room."""
        if self.step:
            raise Rejected("this order is placed already", code="placed")
        self.persist(Placed(room, account, cents))
        self.send(Room.ref(room).book, self.entity_id).reply_to(self.booked).on_failure(self.cancelled)
        self.schedule(self.ref.give_up, key="patience", after=PATIENCE)

    @command
    def booked(self) -> None:
        """Go on: take the money."""
        self.persist(Reached("booked"))
        why = f"order {self.entity_id}"
        self.send(Account.ref(self.account).withdraw, self.cents, why).reply_to(self.paid).on_failure(
            self.undo_booking
        )

    @command
    def paid(self) -> None:
        """Go on: send the tickets. An order that is paid has all the time it needs."""
        self.persist(Reached("paid"))
        self.cancel("patience")
        self.send(Parcel.ref(self.entity_id).ship, self.account).reply_to(self.shipped)

    @command
    def shipped(self, tracking: str) -> None:
        """End well."""
        self.persist(Reached(f"shipped as {tracking}"))

    @command
    def undo_booking(self, failure: Failure) -> None:
        """Undo the first step, since the second one has failed."""
        self.persist(Reached(f"not paid: {failure.code}"))
        self.send(Room.ref(self.room).release, self.entity_id).reply_to(self.cancelled)

    @command
    def cancelled(self) -> None:
        """End without a room, and without a cent taken."""
        self.persist(Reached("cancelled"))
        self.cancel("patience")

    @command
    def give_up(self) -> None:
        """Tell that this order takes long. Its messages are still on their way, and end it."""
        self.persist(Reached(f"{self.step}, late"))

    @query
    def how_far(self) -> str:
        """Return the last step that is done."""
        return self.step

    @applies(Placed)
    def on_placed(self, happened: Placed) -> None:
        self.room, self.account, self.cents = happened.room, happened.account, happened.cents
        self.step = "placed"

    @applies(Reached)
    def on_reached(self, happened: Reached) -> None:
        self.step = happened.step
