"""Reads the cluster once, and judges it: commands, the dashboard and HTTP show the findings."""
