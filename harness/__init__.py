"""Harness: long AI-agent tasks for many tenants, without crushing what stands behind the workers."""
