"""The examples: a module each, with an `EXAMPLE`. They know the HTTP API and nothing else of Harness's inside."""
