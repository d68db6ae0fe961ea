"""``{{ value.price|money }}``: cents as people read them."""

from django import template

from project.auctions import entities

register = template.Library()


@register.filter
def money(cents: int) -> str:
    """Return an amount as people read it."""
    return entities.money(cents)
