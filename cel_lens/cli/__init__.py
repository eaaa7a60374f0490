"""The command line."""

from cel_lens.cli.app import app, main

__all__ = ["app", "main"]
