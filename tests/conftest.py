"""One thread for every test: tiny matrices gain nothing from two, and lose much on a busy machine."""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start, too, and before torch is imported
