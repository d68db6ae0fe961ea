-- Which versions of the wire a node reads and writes: lowest read, highest read, written. Releases that are older than this
-- column spoke version 1. And the table of durable states goes, which nothing has ever written: they are rows of the journal.

ALTER TABLE @schema@.sharding_node ADD COLUMN wire jsonb NOT NULL DEFAULT '[1, 1, 1]';

DROP TABLE @schema@.sharding_state;
