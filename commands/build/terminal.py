"""What a person sees of a command, and what the machine is asked for before anything is built."""

from __future__ import annotations

import os

from rich.console import Console


def open_console() -> Console:
    """Returns standard output, wide enough for a table where it is no terminal."""
    found = Console(highlight=False, soft_wrap=True)
    return found if found.is_terminal else Console(highlight=False, soft_wrap=True, width=120)


def use_threads(threads: int) -> None:
    """Limits torch's CPU threads (0: leaves them)."""
    import torch

    if threads:
        torch.set_num_threads(threads)


def hush() -> None:
    """Keeps the libraries' own progress bars and warnings out of this project's output."""
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # Saving a model imports DeepSpeed, which warns unless it is told what it would find out.
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
