-- Says in a node's row whether it uses a further journal, and answers where the cluster knows that. It may use it in that
-- place only: an operator who changes it waits, and finds the row (journal_users.sql).
WITH known AS MATERIALIZED (
    SELECT j.place FROM sharding_journal j WHERE j.name = %(name)s FOR SHARE
), said AS (
    UPDATE sharding_node
    SET journals = (journals - %(name)s::text)
        || CASE WHEN %(place)s::text IS NULL THEN '[]'::jsonb ELSE jsonb_build_array(%(name)s::text) END
    WHERE incarnation = %(incarnation)s
        AND (%(place)s::text IS NULL OR %(place)s::text = (SELECT known.place FROM known))
)
SELECT known.place FROM known, sharding_node n WHERE n.incarnation = %(incarnation)s;
