"""A data set of prompts, asked and graded."""
