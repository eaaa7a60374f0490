"""Find the attention heads whose removal makes a language model better at a task."""

__version__ = "0.1.0"
