"""The signal by which a project adds lines to the welcome text of `runcluster`.

A receiver of `cluster_started` gets `site`, the web address (None without a site), and returns
pairs of a label and a text::

    @receiver(cluster_started)
    def hints(site, **_):
        return [("Shop", f"{site}shop/")]
"""

from django.dispatch import Signal

cluster_started = Signal()
