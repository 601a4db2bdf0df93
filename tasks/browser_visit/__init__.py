"""Pages opened, clicked through, read and pictured in a browser."""
