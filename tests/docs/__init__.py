"""Tests of the documents: links lead somewhere, samples run, commands and calls exist."""
