"""Faults on real processes and real servers: recorded, then judged. docs/survival.md says how to
run and read them.
"""
