"""A storm of submissions through the door: who comes when, what they are told, and what became of it."""
