"""Kinds that wait without a slot, or speak while they run, and tell a receiver what they were told."""
