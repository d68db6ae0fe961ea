-- Until the end of this transaction we act as the role that has logged in.
SELECT set_config('role', 'none', true);
