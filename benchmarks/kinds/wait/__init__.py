"""One kind a pool that waits, and leaves a line at its start and at its end."""
