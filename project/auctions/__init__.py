"""Auctions whose pages move while users bid."""
