"""The local stack: embedded PostgreSQL and Valkey, and Harness's processes under supervisor.

For a laptop, the demo and the tests; production has its own servers and its own process manager (deploy/).
Nothing here may be imported by the engine, and nothing here needs Django to be set up.
"""
