"""Reading from the web, guarded."""
