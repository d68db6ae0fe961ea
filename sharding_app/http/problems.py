"""What is wrong with the cluster, in words: the dashboard, the health check and `sharding_status` say the same."""

from django.utils.translation import gettext as _

from sharding_app.http.collector import Look
from sharding_app.management.status import Facts, Report, judge


def judged(look: Look) -> Report:
    """The report of `sharding_status`, from what the site has read."""
    rows = look.rows
    facts = Facts(
        now=rows.now,
        cluster_id=rows.cluster_id,
        members=rows.members,
        coordinator=rows.coordinator,
        types=[each.config for each in rows.types],
        shards=rows.shards,
        joined=rows.joined,
        elected=rows.elected,
        events=rows.events,
        answers=look.regions,
        failed=frozenset() if look.trouble else look.late,
    )
    return judge(facts)


def problems(look: Look) -> list[str]:
    """What an operator should look at now, in words; the command `sharding_status` says the same."""
    rows, found = look.rows, list(judged(look).problems)
    if look.trouble:
        found.append(_("No node can be asked from here: {}").format(look.trouble))
    elif rows.members and len(look.late) == len(rows.members):
        found.append(
            _("No node answers this site: is the channel layer (Redis) reachable from here and from there?")
        )
    return found
