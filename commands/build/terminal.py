"""Sets up a command's terminal output and its CPU threads."""

from __future__ import annotations

import os

from rich.console import Console


def open_console() -> Console:
    """Returns a console on standard output, wide enough for tables if that is no terminal."""
    found = Console(highlight=False, soft_wrap=True)
    return found if found.is_terminal else Console(highlight=False, soft_wrap=True, width=120)


def use_threads(threads: int) -> None:
    """Sets the number of torch's CPU threads (0: the default)."""
    import torch

    if threads:
        torch.set_num_threads(threads)


def quiet_libraries() -> None:
    """Turns off the libraries' own progress bars and warnings."""
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # Saving a model imports DeepSpeed, which warns unless it is told what it would find out.
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
