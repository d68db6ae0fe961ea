"""Channels: the transport over a channel layer, and the consumers that are the regions'
endpoints.
"""
