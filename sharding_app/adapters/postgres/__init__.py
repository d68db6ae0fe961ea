"""Journal, cluster store and lifeline sessions in PostgreSQL: the only room that imports
psycopg.
"""
