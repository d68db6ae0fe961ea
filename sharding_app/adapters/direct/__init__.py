"""Frames straight from process to process, over Unix sockets on one machine and TCP between
machines.
"""
