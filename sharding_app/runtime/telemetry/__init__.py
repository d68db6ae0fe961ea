"""Counters, samples and spans."""
