"""How entities are declared, on whichever node they run.

A class body becomes an `EntityType` (`types.py`): its handlers, events and state, each with the codec that
carries it. A host needs nothing else of the user's class. No module here does I/O or starts anything; Django is
looked at only when it is already set up.
"""
