"""A model provider to practise on: OpenAI-compatible, with limits, latency, 429s and faults, on this machine.

For the demo, the tests and the benchmarks. It needs neither Django nor a database, and it invents nothing: an answer
is sentences of the document in the prompt. `python -m harness.ops.emulator --port N` starts it, as does
`manage.py provider`; `server.running` starts it in a thread.
"""
