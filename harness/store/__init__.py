"""PostgreSQL and Redis: the only writer of state. Named SQL in sql/, set-based and locking in one order: lease, then task."""
