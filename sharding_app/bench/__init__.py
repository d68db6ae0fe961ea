"""`manage.py sharding_bench`: how fast it is, measured by anyone, on their servers, with one command.

The client is this process: it calls refs on the loop on which its links live, as a node or an async process does that
asks from there. (Calls from another thread or loop cross over to it, which costs some microseconds more.) Nodes are
child processes that host the types of `bench.entities` and nothing else; no other process ever knows of these types.
"""
