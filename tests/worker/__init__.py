"""Real worker processes against a real PostgreSQL and a real broker."""
