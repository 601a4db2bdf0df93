"""Documents into clean text."""
