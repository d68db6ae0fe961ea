"""What goes wrong with the embedded servers, as one sentence for a person."""


class ServersError(Exception):
    """The embedded servers cannot be had; the message says why and what to do."""
