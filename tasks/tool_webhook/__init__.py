"""Webhooks: one delivery, one token, signed."""
