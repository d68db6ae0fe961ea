"""The servers that are started for the demo and the tests."""
