"""The examinations of `sharding_doctor`: `gather` reads once, each examination judges without I/O.

Contract: reading changes nothing, every read is bounded in rows and in time, and no finding
contains the content of an event or of a state.
"""
