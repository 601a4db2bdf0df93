"""PostgreSQL and Redis: the only writer of state. Named SQL in sql/; locks in one order: lease, then task, by id."""
