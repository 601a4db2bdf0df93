"""Search in the tenant's documents."""
