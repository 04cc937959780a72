"""kvexp: pre-registered experiments on what KV-cache eviction costs, and whether a server can know it."""

__version__ = "0.1.0"
