"""The quiet room: the protocol as state machines.

No await, clock, randomness, logging, Django or I/O.
"""
