-- Who is connected to a target, asked there, as the role that tasks use: rights on its own role's rows are enough, since
-- names of databases, roles and applications are everybody's to read (backend_type isn't: unknown counts as a client).
-- Returns: connections to this database that aren't our tasks'; our tasks' at work, and all of them; and of role, database and server each the
-- number beyond which the server refuses this role (null: it doesn't) and the connections there that aren't our tasks'.
-- Needs: nothing of ours. Locks: none. Parameters: ours (the application name of tasks), looks (a pattern: measurements).
WITH c AS MATERIALIZED (
    SELECT datname, usename, application_name = %(ours)s AS ours, state
    FROM pg_stat_activity
    WHERE usename IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'
      AND pid <> pg_backend_pid() AND application_name NOT LIKE %(looks)s
)
SELECT (SELECT count(*)::integer FROM c WHERE NOT ours AND datname = current_database()),
       (SELECT count(*)::integer FROM c WHERE ours AND datname = current_database()
        AND state IN ('active', 'idle in transaction', 'idle in transaction (aborted)', 'fastpath function call')),
       (SELECT count(*)::integer FROM c WHERE ours AND datname = current_database()),
       (SELECT rolconnlimit FROM pg_roles WHERE rolname = session_user AND rolconnlimit >= 0 AND NOT rolsuper),
       (SELECT count(*)::integer FROM c WHERE NOT ours AND usename = session_user),
       (SELECT datconnlimit FROM pg_database WHERE datname = current_database() AND datconnlimit >= 0
        AND NOT EXISTS (SELECT FROM pg_roles WHERE rolname = session_user AND rolsuper)),
       (SELECT count(*)::integer FROM c WHERE NOT ours AND datname = current_database()),
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
       - coalesce(current_setting('reserved_connections', true), '0')::integer,
       (SELECT count(*)::integer FROM c WHERE NOT ours)
