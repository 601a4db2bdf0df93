"""Kinds that tell whether garbage is collected where they run."""
