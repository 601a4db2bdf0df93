"""Faults on purpose: a schedule of work and faults, what carries them out, what is recorded, and who checks it."""
