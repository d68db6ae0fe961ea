"""Pieces that tests of several folders use."""
