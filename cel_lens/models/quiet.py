"""Keep the libraries underneath from talking: what a user reads comes from cel_lens alone."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

__all__ = ["quiet"]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence prints, warnings, log lines and progress bars inside the block.

    TransformerLens prints after loading, warns that its own class is deprecated, and logs through the
    root logger, which installs a handler on first use; transformers draws progress bars. Everything is
    put back on the way out, also after an exception.
    """
    root = logging.getLogger()
    handler = logging.NullHandler()  # with any handler present, logging.warning() installs none
    disabled = logging.root.manager.disable
    root.addHandler(handler)
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), _silent_streams():
            warnings.simplefilter("ignore")
            with _no_progress_bars():
                yield
    finally:
        logging.disable(disabled)
        root.removeHandler(handler)


@contextlib.contextmanager
def _silent_streams() -> Iterator[None]:
    # The bar for unpacking a GGUF file heeds no setting, so standard error goes too.
    sink = io.StringIO()
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        yield


@contextlib.contextmanager
def _no_progress_bars() -> Iterator[None]:
    from transformers.utils import logging as untyped

    hf_logging: Any = untyped  # partly untyped
    enabled = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            hf_logging.enable_progress_bar()
