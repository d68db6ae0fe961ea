"""`manage.py sharding_bench`: the speed of the package, measured on the user's own servers with one
command.

The client is this process: it calls refs on the event loop of its links, as a node or an async
process does. (Calls from another thread or loop cross over to it, which costs some microseconds
more.) Nodes are child processes that host the types of `bench.entities` and nothing else; no other
process ever knows these types.
"""
