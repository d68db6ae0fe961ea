"""The declaration of entities, independent of the node they run on.

A class body becomes an `EntityType` (`entity_type.py`): its handlers, events and state, each with
its codec. A host needs nothing else of the user's class. No module here does I/O or starts
anything. Django is used only when it is already set up.
"""
