"""Tests of deploy/: what its files start, and that it is what the Procfile starts."""
