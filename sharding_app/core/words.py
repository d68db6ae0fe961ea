"""Commands that every entity knows without declaring them. No name of a user's command looks like them."""

EXISTS = "?exists"
"""Has it ever stored anything?"""
START = "?start"
"""Be there."""
MESSAGE = "?message"
"""The arguments are a message for `receive`."""
