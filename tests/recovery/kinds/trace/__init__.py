"""One file: every kind writes the same lines."""
