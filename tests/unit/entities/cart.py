"""The Cart of the design page, as it stands there."""

from sharding_app import EventSourced, Rejected, applies, command, event, query


@event
class ItemAdded:
    sku: str
    quantity: int


class Cart(EventSourced):
    """A shopping cart: one lives for each customer id."""

    items: dict[str, int]

    def __init__(self) -> None:
        self.items = {}

    @command
    def add(self, sku: str, quantity: int = 1) -> int:
        if quantity < 1:
            raise Rejected("quantity must be at least 1")
        self.persist(ItemAdded(sku, quantity))
        return self.items[sku]

    @query
    def total(self) -> int:
        return sum(self.items.values())

    @applies(ItemAdded)
    def on_item_added(self, happened: ItemAdded) -> None:
        self.items[happened.sku] = self.items.get(happened.sku, 0) + happened.quantity
