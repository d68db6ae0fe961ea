"""Tasks and tables around the links' machines."""
