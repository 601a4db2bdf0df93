"""Work for a prefork child."""
