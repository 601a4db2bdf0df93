-- What became of a notice: it went out (error null), or not; after the last try there is no other.
-- Returns: nothing. Needs: approval_pkey. Parameters: approval, asks, error (or null), last.
UPDATE approval SET
    notified_at = CASE WHEN %(error)s::text IS NULL THEN clock_timestamp() ELSE notified_at END,
    notify_error = %(error)s,
    notify_after = CASE WHEN %(error)s::text IS NULL OR %(last)s THEN NULL ELSE notify_after END
WHERE id = %(approval)s AND asks = %(asks)s
