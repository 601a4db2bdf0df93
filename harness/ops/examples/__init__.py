"""`manage.py example NAME`: one workload on a stack of its own, from the submit to the files that come of it."""
