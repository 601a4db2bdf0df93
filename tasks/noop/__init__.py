"""Kinds that do nothing, wait or go wrong on purpose."""
