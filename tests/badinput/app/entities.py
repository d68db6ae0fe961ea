"""A ledger whose commands go wrong in every way that a user's may."""

from django.contrib.auth.models import Group

from sharding_app import EventSourced, Rejected, ShardingSettings, applies, command, event, query


@event
class Booked:
    amount: int


@event
class Measured:
    value: float


@event
class Noted:
    text: str


class Ledger(EventSourced, name="badinput.Ledger"):
    """A sum of what was booked."""

    sum: int

    def __init__(self) -> None:
        self.sum = 0

    @command
    def book(self, amount: int) -> int:
        self.persist(Booked(amount))
        return self.sum

    @command
    def book_with_row(self, amount: int, name: str) -> int:
        self.persist(Booked(amount), in_transaction=lambda: Group.objects.create(name=name))
        return self.sum

    @command
    def book_with_a_huge_reply(self, amount: int) -> str:
        self.persist(Booked(amount))
        return "x" * 2_000_000

    @command
    def measure(self, amount: int, value: str) -> int:
        self.persist(Booked(amount), Measured(float(value)))
        return self.sum

    @command
    def note(self, amount: int, text: str) -> int:
        self.persist(Booked(amount), Noted(text.replace("NUL", "\0").replace("LONE", "\ud800")))
        return self.sum

    @command
    def fail(self, amount: int) -> int:
        self.persist(Booked(amount))
        raise ZeroDivisionError("a mistake of the user's")

    @command
    def fail_about(self, amount: int, text: str) -> int:
        self.persist(Booked(amount))
        try:
            return int(text)
        except ValueError as error:
            raise LookupError(f"nobody has the card {text}") from error

    @command
    def refuse(self, amount: int, why: str = "not today") -> int:
        self.persist(Booked(amount))
        raise Rejected(why, code="closed")

    @command
    def answer_with_an_object(self, amount: int) -> object:
        self.persist(Booked(amount))
        return object()

    @query
    def total(self) -> int:
        return self.sum

    @query
    def everything(self) -> str:
        return "x" * 2_000_000

    @applies(Booked)
    def on_booked(self, happened: Booked) -> None:
        self.sum += happened.amount

    @applies(Measured)
    def on_measured(self, happened: Measured) -> None: ...

    @applies(Noted)
    def on_noted(self, happened: Noted) -> None: ...


class Elsewhere(EventSourced, name="badinput.Elsewhere"):
    """Declared, but no node of this cluster has its role."""

    settings = ShardingSettings(role="nobody")

    @command
    def touch(self) -> int:
        return 1
