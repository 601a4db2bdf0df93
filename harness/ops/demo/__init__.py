"""`script/demo`: the whole system on this machine, doing real work through its HTTP API."""
