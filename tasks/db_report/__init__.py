"""Kind db.report."""
