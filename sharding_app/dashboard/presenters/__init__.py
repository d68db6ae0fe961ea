"""From a look at the cluster to what the pages show. Pure: no request, no database, no clock of
their own.

Each function returns plain dicts for a template. A node is shown by its letter and its colour
everywhere; what is not known is shown as a dash, never as a zero.
"""
