"""The lock file of all that is stored or waits: what a change of the code breaks is found before a
deploy, without a database.
"""
