"""A kind that needs what is scarce."""
