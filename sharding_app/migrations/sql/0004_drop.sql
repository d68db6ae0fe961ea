CREATE TABLE @schema@.sharding_state (
    type_id integer NOT NULL,
    entity text COLLATE "C" NOT NULL CHECK (octet_length(entity) BETWEEN 1 AND 512),
    revision bigint NOT NULL CHECK (revision > 0),
    shard integer NOT NULL,
    epoch bigint NOT NULL,
    state json NOT NULL,
    command_id text COLLATE "C",
    command text COLLATE "C",
    reply bytea,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (type_id, entity)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE TRIGGER sharding_fence AFTER INSERT ON @schema@.sharding_state
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
CREATE TRIGGER sharding_fence_update AFTER UPDATE ON @schema@.sharding_state
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();

ALTER TABLE @schema@.sharding_node DROP COLUMN wire;
