-- A version, to the end of the transaction: its positions in a journal begin once, and not while it is reset or removed.
SELECT r.type_ids FROM sharding_projection r WHERE r.id = %(id)s FOR UPDATE;
