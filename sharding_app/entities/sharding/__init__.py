"""The reference's API: regions, queries, singletons, allocation from outside."""
