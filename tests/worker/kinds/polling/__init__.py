"""Work that asks whether it shall stop."""
