WITH positions AS (
    DELETE FROM sharding_position WHERE projection_id = %(id)s
), following AS (
    DELETE FROM sharding_following WHERE projection_id = %(id)s
), filled AS (
    DELETE FROM sharding_filled WHERE projection_id = %(id)s
)
DELETE FROM sharding_held WHERE projection_id = %(id)s;
