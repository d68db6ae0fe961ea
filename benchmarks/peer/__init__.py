"""One module for each peer. Each says how it was configured, and why that is fair to it.

A module has `NAME`, `NOTE`, `WORKLOADS` (of `ask` and `durable`, what it can do), `MOST_IN_FLIGHT`,
and `opened(url)`: an async context manager that gives a `Call` for each workload.
"""
