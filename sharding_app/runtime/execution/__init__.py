"""One command on one entity: from its envelope to its answer."""
