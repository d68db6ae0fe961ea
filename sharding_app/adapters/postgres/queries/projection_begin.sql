-- Settings of this transaction alone. A coordinator that buries the node ends sessions of this name. And whether events
-- would be left out.
SELECT set_config('application_name', %(name)s, true), set_config('lock_timeout', %(lock_timeout)s, true),
    set_config('idle_in_transaction_session_timeout', %(idle_timeout)s, true),
    @filtered@;
