"""The coordinator's machine and its parts."""
