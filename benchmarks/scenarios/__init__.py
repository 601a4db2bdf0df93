"""The scenarios: each offers `run(bench) -> dict` for the JSON file and prints its table through bench.console."""
