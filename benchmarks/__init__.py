"""Benchmarks: existing task queues and Harness on the same work, with the same servers and the same interpreter.

Run `script/bench NAME [--quick] [--json FILE]`. Nothing here is imported by the product, and what a run claims is
counted from files that the work itself wrote, never from anybody's own counters.
"""
