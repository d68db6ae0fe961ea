"""The template tags of live pages: ``{% load sharding %}``."""
