"""Faults on real processes and real servers for as long as one likes, and a judge of what callers saw (`sharding_torture`).

`entities` are called by `load` at a steady rate, while `faults` break things (`mixed`). Afterwards `judge` compares the
callers' `history` with the journal, and `registry` what live instances said of themselves (`instances`).
"""
