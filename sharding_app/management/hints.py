"""How a project adds lines to what `runcluster` prints when all is up.

A receiver of `cluster_started` gets `site`, the web address (None without one), and returns pairs of a label and a text::

    @receiver(cluster_started)
    def hints(site, **_):
        return [("Shop", f"{site}shop/")]
"""

from django.dispatch import Signal

cluster_started = Signal()
