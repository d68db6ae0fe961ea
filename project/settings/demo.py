"""The demo as `manage.py` runs it: the site on one machine, with the auction house.

Its singleton and its projection work in each cluster of these settings, so those of tests are
without it.
"""

from __future__ import annotations

from project.settings import *

INSTALLED_APPS = [*INSTALLED_APPS, "project.auctions"]
