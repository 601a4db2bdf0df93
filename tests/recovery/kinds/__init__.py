"""Kinds that die, hang, or leave a line for each effect: what the tests of recovery run."""
