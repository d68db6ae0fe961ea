"""What strangers send, and what must not be said: decoders under fuzz, secrets, keys, repeated
frames.
"""
