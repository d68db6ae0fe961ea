"""The same work with others' tools, what growth costs in the simulation, and the page with the
figures.
"""
