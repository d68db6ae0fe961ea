"""A node's figures as families of metrics. Labels are bounded: node, type, reason; never an
entity.
"""

from collections.abc import Sequence

from sharding_app.protocol.histogram import ROWS, SECONDS
from sharding_app.protocol.messages import NodeStats, TypeStats
from sharding_app.runtime.telemetry.exposition import Buckets, Family, Labels, Sample

GAUGES = {
    "lease_seconds": "For how long the lease is still valid.",
    "loop_lag_seconds": "How late the event loop's last beat came.",
    "worst_loop_lag_seconds": "How late it ever came.",
    "memory_bytes": "What the process holds in memory.",
    "pending_asks": "Commands that this process has asked for and that are not answered yet.",
    "waiting_asks": "Of the pending commands those that wait for a home of their shard; the others are under way.",
    "buffered_bytes": "Bytes of those commands.",
    "answers_waiting_bytes": "Answers that wait for room on the links to their callers.",
    "journal_waiting": "Commits that wait for an append.",
    "journal_under_way": "Appends under way, each on a connection of its own.",
    "journal_locked_shards": "Shards whose commits wait for a transaction that holds their rows.",
    "journals_down": "Further journals that this node cannot use now.",
    "messages_in_memory": "Durable messages and timers in this node's memory: those that are due soon, as far as there is room.",
    "followers_waiting": "Questions of followers that wait on this node for the next event of an entity.",
    "longest_recovery_events": "The most events that the recovery of one entity has read.",
    "links": "Live links to other processes.",
    "link_queued_messages": "Messages that wait on links.",
    "link_queued_bytes": "Bytes that wait on links.",
    "link_round_trip_seconds": "The longest of the links' round trips.",
    "transport_connections": "Processes to which there is a direct connection.",
    "transport_peers_by_layer": "Processes reached over the channel layer for want of a direct connection.",
    "transport_layer_away_seconds": "Time for which the process has not heard itself through the channel layer; 0: it hears.",
}
COUNTERS = {
    "asks": "Commands that this process has asked for.",
    "answers": "Answers that it got.",
    "answers_dropped": "Answers that were replaced by a small error: too much waited for their caller already.",
    "journal_commits": "Commands whose events were committed.",
    "journal_appends": "Batches that were appended.",
    "journal_overlaps": "Batches whose append began while another one was under way.",
    "journal_events": "Events that were appended.",
    "journal_failures": "Commands whose events were not committed.",
    "messages_delivered": "Durable messages and timers that have taken effect, as the target has answered to this node. It misses those whose "
    "answer was lost.",
    "messages_retried": "Deliveries of them after the first one.",
    "messages_failed": "Deliveries of them that their target rejected or failed to handle.",
    "messages_parked": "Those that are not delivered any more until an operator decides.",
    "followed_events": "Events that were sent to followers.",
    "follower_questions": "Questions of followers that came.",
    "follower_reads": "Reads of the journal for followers, each for all entities that were wanted then.",
    "followers_refused": "Questions of followers that were refused, because too many waited (`FOLLOWERS`).",
    "lifeline_losses": "Sessions of the lifeline that were lost.",
    "loop_blocked": "How often a handler held the event loop for too long.",
    "link_messages_sent": "Messages that were sent on links.",
    "link_frames_resent": "Frames that were sent again.",
    "link_frames_late": "Frames that may have been under way for too long, and were not taken in.",
    "link_put_refused": "Messages that a full link refused.",
    "link_frames_unreadable": "Frames that could not be decoded.",
    "link_messages_unreadable": "Messages that could not be decoded.",
    "link_frames_of_another_wire": "Frames of a version of the wire that is not read.",
    "link_frames_misdirected": "Frames that were meant for another process.",
    "link_send_errors": "How often the channel layer refused a frame.",
    "link_deliver_errors": "How often delivering what a frame carried raised an error.",
    "link_peer_unreachable": "How often one peer took no frame.",
    "transport_frames_by_layer": "Frames that the channel layer carried for want of a direct connection.",
    "transport_dials_failed": "Direct connections that could not be made.",
    "transport_handshakes_failed": "Direct connections whose other side did not prove that it knows a key.",
    "transport_connections_lost": "Direct connections that broke.",
    "transport_connections_silent": "Direct connections that were closed because nothing came back.",
    "transport_unproven_dropped": "Unproven direct connections that were closed to make room for others.",
    "transport_deaf": "How often the process did not hear itself through the channel layer.",
    "transport_messages_undecodable": "Messages that the channel layer could not decode, and that were dropped.",
    "transport_seals_broken": "Frames that none of the keys opens.",
    "transport_frames_dropped": "Frames that came when too many waited already.",
    "transport_channel_full": "Frames that were refused since the receiver's channel was full.",
}
HISTOGRAMS = {
    "journal_append_seconds": ("How long an append took, commit included.", SECONDS),
    "journal_batch_rows": ("How many events an append carried.", ROWS),
    "timer_lateness_seconds": ("How long after its time a durable timer went out first.", SECONDS),
    "home_seconds": ("How long it took to learn where a shard lives, from the first question on.", SECONDS),
    "hand_off_pause_seconds": (
        "How long shards were away while they moved, as the coordinator saw it.",
        SECONDS,
    ),
}


def families(stats: NodeStats, labels: Labels) -> list[Family]:
    """Return all metrics of one process."""
    found = [
        Family(f"sharding_{name}", "gauge", text, [Sample(labels, stats.gauges[name])])
        for name, text in GAUGES.items()
        if name in stats.gauges
    ]
    found += [
        Family(f"sharding_{name}_total", "counter", text, [Sample(labels, stats.counters[name])])
        for name, text in COUNTERS.items()
        if name in stats.counters
    ]
    if "cpu_milliseconds" in stats.counters:
        seconds = stats.counters["cpu_milliseconds"] / 1000
        found.append(
            Family("sharding_cpu_seconds_total", "counter", "Processor time.", [Sample(labels, seconds)])
        )
    found += [
        Family(f"sharding_{name}", "histogram", text, [Buckets(labels, bounds, *stats.histograms[name])])
        for name, (text, bounds) in HISTOGRAMS.items()
        if name in stats.histograms
    ]
    return [*found, *_types(stats.types, labels), *_drops(stats, labels), *_coordination(stats, labels)]


def _types(types: Sequence[TypeStats], labels: Labels) -> list[Family]:
    each = [({**labels, "type": one.type}, one) for one in types]
    return [
        Family("sharding_shards", "gauge", "Shards at home here.", [Sample(of, one.shards) for of, one in each]),
        Family("sharding_entities", "gauge", "Entities in memory.", [Sample(of, one.entities) for of, one in each]),
        Family(
            "sharding_cannot_start", "gauge", "Entities whose constructor or recovery fails; remembered ones and singletons "
            "are tried again by themselves.",
            [Sample(of, one.cannot_start) for of, one in each],
        ),
        Family(
            "sharding_commands_total", "counter", "Commands that came for entities here.",
            [Sample(of, one.commands) for of, one in each],
        ),
        Family(
            "sharding_command_seconds", "histogram",
            "Time from a command's arrival to its answer, commit included; a sample of all commands.",
            [Buckets(of, SECONDS, one.latency, one.latency_sum) for of, one in each],
        ),
        Family(
            "sharding_incidents_total", "counter", "What happened to entities and commands here, by name.",
            [
                Sample({**of, "what": name}, count)
                for of, one in each
                for name, count in sorted(one.counters.items())
            ],
        ),
    ]  # fmt: skip


def _drops(stats: NodeStats, labels: Labels) -> list[Family]:
    return [
        Family(
            "sharding_dropped_total",
            "counter",
            "Commands that this process had asked for and that were not delivered or not answered in time.",
            [
                Sample({**labels, "type": name, "reason": why}, count)
                for name, why, count in sorted(stats.drops)
            ],
        )
    ]


def _coordination(stats: NodeStats, labels: Labels) -> list[Family]:
    work = stats.coordination
    here = Family(
        "sharding_coordinates", "gauge", "1 on the node that coordinates.", [Sample(labels, work is not None)]
    )
    if work is None:
        return [here]
    states = {
        "handing_off": work.handing_off,
        "queued": work.queued,
        "starting": work.starting,
        "waiting_for_a_home": work.waiting,
    }
    failures = [Sample({**labels, "type": name}, count) for name, count in work.strategy_failures.items()]
    return [
        here,
        Family(
            "sharding_strategy_failures_total",
            "counter",
            "How often the allocation strategy of a type failed: the default one chose, or nothing moved.",
            failures,
        ),
        Family("sharding_term", "gauge", "The coordinator's term.", [Sample(labels, work.term)]),
        Family(
            "sharding_rebalancing",
            "gauge",
            "0 while rebalancing is paused.",
            [Sample(labels, work.rebalancing)],
        ),
        Family(
            "sharding_shards_in_motion",
            "gauge",
            "Shards that the coordinator is moving, by what they wait for.",
            [Sample({**labels, "state": state}, count) for state, count in states.items()],
        ),
    ]
