"""Agents that work with the tools of MCP servers."""
