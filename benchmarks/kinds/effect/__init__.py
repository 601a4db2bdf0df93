"""Kinds whose executions and effects a receiver outside of Harness writes down."""
