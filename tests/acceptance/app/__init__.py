"""A small Django app whose entities are easy to judge from the outside."""
