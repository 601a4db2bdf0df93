"""Summaries by a language model."""
