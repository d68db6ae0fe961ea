-- Says in a node's row whether it uses a further journal, and answers where the cluster knows that. It may use it in that
-- place only: an operator who changes it waits, and finds the row (journal_users.sql). A place that was lost with a failover
-- is stored again, unless the cluster knows it as another journal's. Then, and while another node stores it, there is none.
WITH made AS (
    INSERT INTO sharding_journal (name, place) SELECT %(name)s, %(place)s::text WHERE %(place)s::text IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING place
), stood AS MATERIALIZED (
    SELECT j.place FROM sharding_journal j WHERE j.name = %(name)s FOR SHARE
), known AS MATERIALIZED (
    SELECT made.place FROM made UNION ALL SELECT stood.place FROM stood
), said AS (
    UPDATE sharding_node
    SET journals = (journals - %(name)s::text)
        || CASE WHEN %(place)s::text IS NULL THEN '[]'::jsonb ELSE jsonb_build_array(%(name)s::text) END
    WHERE incarnation = %(incarnation)s
        AND (%(place)s::text IS NULL OR %(place)s::text = (SELECT known.place FROM known))
)
SELECT (SELECT known.place FROM known) FROM sharding_node n WHERE n.incarnation = %(incarnation)s;
