"""The auctions as a Django app."""

from django.apps import AppConfig


class AuctionsConfig(AppConfig):
    """Labelled `auctions`, so that its lots are `auctions.Lot`."""

    name = "project.auctions"
    label = "auctions"
