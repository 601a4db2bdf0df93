"""Commands of the web ring."""
