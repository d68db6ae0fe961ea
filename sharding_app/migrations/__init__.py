"""The cluster's tables, made on the cluster's own PostgreSQL alias and nowhere else."""
