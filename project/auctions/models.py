"""The list of open auctions. A projection writes its rows."""

from django.db import models


class OpenAuction(models.Model):
    """One open auction, as of a moment ago."""

    id = models.TextField(primary_key=True)
    title = models.TextField()
    price = models.BigIntegerField()
    "In cents."
    closes_at = models.DateTimeField()

    class Meta:
        app_label = "auctions"

    def __str__(self) -> str:
        return self.title
