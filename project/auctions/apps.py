"""The auction house as a Django app."""

from django.apps import AppConfig


class AuctionsConfig(AppConfig):
    """Labelled `auctions`, so that its auctions are `auctions.Auction`."""

    name = "project.auctions"
    label = "auctions"
