"""The kind that calls the provider of a benchmark."""
