"""The kind that holds a connection of a target database."""
