SELECT (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user),
    has_database_privilege('public', current_database(), 'CONNECT');
