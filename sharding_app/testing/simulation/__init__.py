"""A whole cluster in one thread, on virtual time: the real runtime over faulty virtual servers.

Seeded and replayable.
"""
