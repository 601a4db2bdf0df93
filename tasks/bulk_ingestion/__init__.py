"""A folder of documents, ingested as a run."""
