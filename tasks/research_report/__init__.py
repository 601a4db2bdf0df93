"""A report on a question, from the tenant's documents, by several analysts, a critic and a person."""
