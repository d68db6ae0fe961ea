"""Accounts, and money that moves between them.

The account that pays withdraws the money and sends it in one command: both are stored, or neither
is. The account that gets it stores its deposit in the transaction that deletes the message. So at
any moment each cent is in one account or in one message, whichever node dies.
"""

from sharding_app import EventSourced, Failure, Rejected, applies, command, event, query


@event
class Moved:
    """Money came in, or went out (`cents` is negative)."""

    cents: int
    why: str


@event
class Closed:
    pass


class Account(EventSourced):
    """One bank account. It is never overdrawn."""

    balance: int = 0
    closed: bool = False

    @command
    def deposit(self, cents: int, why: str = "cash") -> int:
        """Take money in, and return the balance."""
        if self.closed:
            raise Rejected("the account is closed", code="closed")
        self.persist(Moved(cents, why))
        return self.balance

    @command
    def withdraw(self, cents: int, why: str = "cash") -> int:
        """Pay money out, and return the balance."""
        return self._pay_out(cents, why)

    @command
    def transfer(self, to: str, cents: int) -> int:
        """Send money to another account; if that one refuses it, it comes back."""
        left = self._pay_out(cents, f"to {to}")
        self.send(Account.ref(to).deposit, cents, why=f"from {self.entity_id}").on_failure(self.take_back)
        return left

    @command
    def take_back(self, failure: Failure) -> None:
        """Take back money that another account has refused."""
        why = f"back from {failure.entity_id}: {failure.code}"
        self.persist(Moved(failure.arguments["cents"], why))

    @command
    def close(self) -> None:
        """Take no more money in, except what comes back."""
        self.persist(Closed())

    @query
    def cents(self) -> int:
        """Return the balance."""
        return self.balance

    def _pay_out(self, cents: int, why: str) -> int:
        if cents > self.balance:
            raise Rejected("not enough money", code="short")
        self.persist(Moved(-cents, why))
        return self.balance

    @applies(Moved)
    def on_moved(self, happened: Moved) -> None:
        self.balance += happened.cents

    @applies(Closed)
    def on_closed(self, happened: Closed) -> None:
        self.closed = True
