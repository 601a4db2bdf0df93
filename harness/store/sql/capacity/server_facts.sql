-- What the server of Harness's own database says of itself.
-- Returns one row: version number, fsync, full_page_writes, whether it is a standby. Needs: nothing. Locks: none.
SELECT current_setting('server_version_num')::integer,
       current_setting('fsync')::boolean,
       current_setting('full_page_writes')::boolean,
       pg_is_in_recovery()
