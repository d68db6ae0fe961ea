"""Bridges to other packages, loaded where these are installed."""
