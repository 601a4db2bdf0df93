-- Delete rows whose bytes are gone. Returns: nothing. Needs: artifact_pkey. Locks: the rows. Parameters: ids.
DELETE FROM artifact WHERE id = ANY(%(ids)s) AND state = 'removing'
