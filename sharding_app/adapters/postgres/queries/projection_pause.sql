UPDATE sharding_projection SET paused = %(paused)s WHERE name = %(name)s AND version = %(version)s RETURNING id;
