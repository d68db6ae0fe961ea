"""The tests; `tests/house` is about the project itself, the rest about the app."""
