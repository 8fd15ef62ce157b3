"""Sets up a command's terminal output, its CPU threads, and looks at its accelerator."""

from __future__ import annotations

import os

from rich.console import Console

from configs.nvidia import complaint, driver
from configs.schema import Config
from configs.text import ConfigError


def open_console() -> Console:
    """Returns a console on standard output, wide enough for tables if that is no terminal."""
    found = Console(highlight=False, soft_wrap=True)
    return found if found.is_terminal else Console(highlight=False, soft_wrap=True, width=120)


def use_threads(threads: int) -> None:
    """Sets the number of torch's CPU threads (0: the default)."""
    import torch

    if threads:
        torch.set_num_threads(threads)


def check_accelerator(config: Config) -> None:
    """Refuses to train on the CPU what is meant for a GPU that is here, but that torch cannot use.

    Raises:
        ConfigError: torch is built for CUDA and nvidia-smi works, but there is no CUDA for torch.
    """
    import torch

    meant = config.model.dtype == "bfloat16" or config.generator.backend == "vllm"
    if not meant or torch.version.cuda is None or torch.cuda.is_available() or driver() is None:
        return
    raise ConfigError(
        complaint() or "nvidia-smi works, but torch.cuda.is_available() is false: `make doctor` says more"
    )


def quiet_libraries() -> None:
    """Turns off the libraries' own progress bars and warnings."""
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # Saving a model imports DeepSpeed, which warns unless it is told what it would find out.
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
