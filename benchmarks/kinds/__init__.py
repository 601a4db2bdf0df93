"""Kinds for benchmarks only; benchmarks.settings adds them to a process, with the resource that one of them needs."""
