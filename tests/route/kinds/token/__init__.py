"""Work that leaves its token."""
