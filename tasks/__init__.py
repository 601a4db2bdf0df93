"""The kinds that come with Harness: one folder a kind. They import harness.kinds and nothing else of Harness."""
