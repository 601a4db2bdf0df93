"""How many workers there are, who says so, and whether it was right."""
