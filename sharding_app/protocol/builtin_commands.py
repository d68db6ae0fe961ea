"""Built-in commands, which every entity has without declaring them. No name of a user's command
looks like them.
"""

EXISTS = "?exists"
"""Tell whether it has ever stored anything."""
START = "?start"
"""Load the entity without running a command."""
MESSAGE = "?message"
"""Pass the arguments to `receive`: they are a message."""
DUE = "?due"
"""Tell the home that a message or a timer of the entity was stored from outside, or changed by an
operator: the arguments are then its id. Loads nothing.
"""
EVENTS = "?events"
"""Tell a follower of the entity its events after a number, now or when there are some
(`protocol.following`). Loads nothing.
"""
IDS = "?ids"
"""Read a page of the ids of a type that are stored: for a home of the type, and no entity
(`protocol.listing`). Loads nothing.
"""
FOR_THE_HOME = frozenset({DUE, EVENTS, IDS})
"""Commands that the home itself handles, whether or not the entity is in memory."""
