"""What became of a tenant's tasks."""
