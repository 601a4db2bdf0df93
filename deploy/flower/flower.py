"""Flower's configuration behind a proxy that serves it below /flower/; the login is in the environment.

`celery -A config flower` lets nobody in without a login and changes nothing (harness.worker.monitor).
"""

import os

address = os.environ.get("HARNESS_FLOWER_ADDRESS", "0.0.0.0")  # of its container; the proxy is what others reach
port = int(os.environ.get("HARNESS_FLOWER_PORT", "5555"))
basic_auth = [os.environ["HARNESS_FLOWER_LOGIN"]]  # name:password
url_prefix = "flower"
read_only = True
# Which pools send events is in resources.toml: Flower must not switch them on for the others.
enable_events = False
max_tasks = 10000
purge_offline_workers = 300
