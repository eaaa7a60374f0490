"""The other side of the sandbox: runs in bare interpreters and imports nothing of cel_lens."""
