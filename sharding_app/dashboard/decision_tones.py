"""Colours of the kinds of decisions in the timeline. A kind that is not named here is plain."""

TONES = {
    "coordinator_elected": "good",
    "node_joining": "busy",
    "node_up": "good",
    "node_leaving": "busy",
    "node_left": "busy",
    "node_dead": "bad",
    "shards_fenced": "warn",
    "shards_placed": "plain",
    "shards_moved": "busy",
    "move_asked": "plain",
    "rebalancing_asked": "plain",
    "rebalancing_paused": "warn",
    "rebalancing_resumed": "good",
    "hand_off_late": "bad",
}
