"""Lock keys are the same in every process, and differ wherever they must."""

from sharding_app.protocol.liveness.locks import coordinator_key, lifeline_keys, lock_key


def test_keys_are_stable() -> None:
    assert lock_key("cluster", "node", 0) == lock_key("cluster", "node", 0)
    assert lifeline_keys("cluster", "node") == (
        lock_key("cluster", "node", 0),
        lock_key("cluster", "node", 1),
    )
    assert coordinator_key("c") == 6997982436783165097  # never another number: releases run mixed


def test_keys_differ_between_clusters_nodes_and_sessions() -> None:
    keys = [
        lock_key(cluster, node, number)
        for cluster in ("a", "b", "ab")
        for node in ("a", "b", "ab", "")
        for number in range(50)
    ]
    assert len(set(keys)) == len(keys)


def test_keys_fit_into_signed_64_bits() -> None:
    keys = [lock_key("c", str(number), 0) for number in range(1000)]
    assert all(-(2**63) <= key < 2**63 for key in keys)
    assert min(keys) < 0 < max(keys)
