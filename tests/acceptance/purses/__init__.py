"""Entities of a cluster with two journals, for commands and pages."""
