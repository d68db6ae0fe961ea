"""Faults on real processes and servers for any time, and a judge of the results
(`sharding_torture`).

`load` calls the `entities` at a steady rate, while `faults` break things (`mixed`). Afterwards
`judge` compares the callers' `history` with the journal, and `registry` judges the reports of live
instances (`instances`).
"""
