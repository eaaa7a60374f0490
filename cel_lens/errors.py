"""Errors a caller may want to catch; everything else is a plain ``ValueError`` or a bug."""

__all__ = [
    "CelLensError",
    "EvaluationError",
    "InvalidInput",
    "ModelLoadError",
    "RunFolderError",
    "UnsupportedModel",
]


class CelLensError(Exception):
    """Base class of every error that cel_lens raises on purpose.

    The message is one plain sentence that says what was given and what is possible; the command
    line prints it as it is and exits with code 2.
    """


class InvalidInput(CelLensError, ValueError):
    """An argument, a file or a row that cannot be used: the message names it and the alternatives."""


class ModelLoadError(CelLensError):
    """A model could not be loaded: unknown name, missing file, no network, damaged weights."""


class UnsupportedModel(CelLensError):
    """A model loads but cannot be ablated exactly, so it is refused rather than half-supported."""


class EvaluationError(CelLensError):
    """A model gave something that is not a verdict, such as a non-finite logit."""


class RunFolderError(CelLensError):
    """A run folder is in use, belongs to another run, or was damaged."""
