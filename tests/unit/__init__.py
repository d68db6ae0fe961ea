"""One process and no server: machines, and shells on adapters in memory. The folders are those of
`sharding_app`.
"""
