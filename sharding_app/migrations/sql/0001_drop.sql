DROP TABLE @schema@.sharding_cluster, @schema@.sharding_coordinator, @schema@.sharding_node, @schema@.sharding_type,
    @schema@.sharding_shard, @schema@.sharding_event, @schema@.sharding_snapshot, @schema@.sharding_remembered, @schema@.sharding_message,
    @schema@.sharding_lease, @schema@.sharding_journal, @schema@.sharding_decision, @schema@.sharding_location,
    @schema@.sharding_change, @schema@.sharding_projection, @schema@.sharding_position, @schema@.sharding_filled,
    @schema@.sharding_held, @schema@.sharding_following, @schema@.sharding_secured, @schema@.sharding_subject,
    @schema@.sharding_taken, @schema@.sharding_move;
DROP FUNCTION @schema@.sharding_partition_type_v1();
DROP FUNCTION @schema@.sharding_make_partition_v1(regclass, text, integer, integer, text);
DROP FUNCTION @schema@.sharding_journal_storage_v1();
DROP FUNCTION @schema@.sharding_note_touched_v1();
DROP FUNCTION @schema@.sharding_fence_v1();
DROP FUNCTION @schema@.sharding_follow_v1(integer[], boolean);
DROP FUNCTION @schema@.sharding_uses_messages_v1();
DROP FUNCTION @schema@.sharding_append_marked_v1;
DROP FUNCTION @schema@.sharding_append_v1;
DROP FUNCTION @schema@.sharding_locate_v1(text, integer[], text[]);
DROP FUNCTION @schema@.sharding_decide_v1(bigint, text[], integer[], bigint[], bigint[], text[], text[], text[]);
DROP FUNCTION @schema@.sharding_restore_shards_v1(
    bigint, text[], text[], integer[], bigint[], text[], text[], integer[], integer[]);
DROP FUNCTION @schema@.sharding_check_journals_v1();
DROP FUNCTION @schema@.sharding_journals_to_read_v1();
DROP FUNCTION @schema@.sharding_open_lapsed_v1(bigint);
DROP FUNCTION @schema@.sharding_put_in_force_v1(bigint, text, bigint);
DROP FUNCTION @schema@.sharding_acquire_leases_v1(text[], text, double precision, double precision);
DROP FUNCTION @schema@.sharding_renew_leases_v1(text[], bigint[], text[], text, double precision, double precision);
DROP FUNCTION @schema@.sharding_take_v1(integer, text, integer, integer, integer, bigint, integer[], bigint[], text);
DROP FUNCTION @schema@.sharding_note_moving_v1();
DROP FUNCTION @schema@.sharding_unstash_v1(integer, integer[]);
DROP FUNCTION @schema@.sharding_standing_v1(text[]);
DROP FUNCTION @schema@.sharding_refile_v1(integer, integer, integer, integer, bigint, integer[]);
DROP FUNCTION @schema@.sharding_resize_v1(text, integer, integer, text);
DROP FUNCTION @schema@.sharding_renumber_v1(bigint, text, bigint, integer, bigint, integer);
DROP FUNCTION @schema@.sharding_former_shards_v1(integer, text);
DROP FUNCTION @schema@.sharding_shard_of_v1(text, integer, integer, integer);
DROP FUNCTION @schema@.sharding_hash_v1(text);
DROP FUNCTION @schema@.sharding_modulus_v1(bigint, integer, integer, integer);
DROP FUNCTION @schema@.sharding_bury_v1(bigint, text);
DROP FUNCTION @schema@.sharding_guard_v1(bigint);
DROP FUNCTION @schema@.sharding_lineage_v1();
DROP FUNCTION @schema@.sharding_locks_v1();
DROP FUNCTION @schema@.sharding_advisory_v1();
DROP FUNCTION @schema@.sharding_strangers_v1();
