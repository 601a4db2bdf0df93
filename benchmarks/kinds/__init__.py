"""Kinds for benchmarks only; HARNESS_TASK_PACKAGES=tasks,benchmarks.kinds adds them to a process."""
