"""The cluster in Django's admin. `register(site)` adds it to your own site; the default site has it
already.

Imported by `django.contrib.admin`'s autodiscovery, and by nothing else of the app.
"""

from django.contrib import admin

from sharding_app.admin.registration import register

__all__ = ["register"]

register(admin.site)
