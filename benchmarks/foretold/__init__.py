"""What people were told about when their tasks would start, and when they did."""
