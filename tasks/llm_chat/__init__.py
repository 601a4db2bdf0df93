"""Conversations with a language model."""
