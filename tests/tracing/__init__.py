"""Spans, as the official SDK collects them."""
