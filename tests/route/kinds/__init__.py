"""Kinds that only these tests register (HARNESS_TASK_PACKAGES)."""
