"""Starts a run's processes on this machine, watches them, and ends them together.

PyTorch's elastic launcher does the work, without restarts; several machines use `torchrun` themselves, with
the same `run.py train`: the processes only look at RANK, LOCAL_RANK, WORLD_SIZE and the address of rank 0.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands.launched import LAUNCHER, MISTAKES, complaints, print_mistake

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

RUN = Path(__file__).resolve().parent.parent / "run.py"
EXPLAINED = 2
"""Exit code of a process that has printed why it ended: a mistake of the user's, or a lost peer."""
GRACE_S = 15  # between asking a process to end and killing it


def launch(nproc: int, argv: Sequence[str], script: Path = RUN) -> int:
    """Runs `python run.py ARGV…` in several processes and waits for them.

    Rank 0 has the terminal. Of the others, what they write to standard error comes through, each line with
    its rank before it; their standard output would repeat rank 0's and is dropped. When one process ends with
    an error all are ended, and the last line says which, how and why. Ctrl-C and SIGTERM reach every process.

    Args:
        nproc: Processes, ≥ 1; on a machine with accelerators one each.
        argv: Arguments of the script.
        script: Run instead of run.py.

    Returns:
        0, or the exit code of the first process that failed (128 + its signal if one ended it).
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    # As torchrun does: one thread per core in every process would be many times too many.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // nproc)))
    # Large pages for torch's memory on a CPU, read once by its import: a process streams through more of keys
    # and values than small pages' addresses fit a core's tables. A tenth of a rollout.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    with tempfile.TemporaryDirectory(prefix="sibling-ranks-") as folder, _quiet():
        logs, mistakes = Path(folder, "logs"), Path(folder, "mistakes")
        logs.mkdir()
        mistakes.mkdir()
        os.environ |= {LAUNCHER: str(os.getpid()), MISTAKES: str(mistakes)}
        try:
            elastic_launch(_config(nproc, str(logs)), sys.executable)("-u", str(script), *argv)
        except ChildFailedError as error:
            _end_groups(error.failures)
            return _report(error.failures, nproc, complaints(mistakes))
        except SignalException as stopped:
            return 128 + int(stopped.sigval)
        finally:
            del os.environ[LAUNCHER], os.environ[MISTAKES]
    return 0


def _config(nproc: int, logs: str) -> Any:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.launcher.api import LaunchConfig

    others = range(1, nproc)
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=nproc,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",  # a free port
        local_addr="127.0.0.1",
        max_restarts=0,
        monitor_interval=0.1,
        log_line_prefix_template="[rank ${rank}] ",
        shutdown_timeout=GRACE_S,
        logs_specs=DefaultLogsSpecs(
            log_dir=logs,
            redirects=dict.fromkeys(others, Std.ALL),
            tee=dict.fromkeys(others, Std.ERR),
        ),
    )


@contextlib.contextmanager
def _quiet() -> Any:
    """Keeps the launcher's own log off the terminal; `_report` prints what matters."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _report(failures: Mapping[int, ProcessFailure], nproc: int, mistakes: Mapping[str, Sequence[int]]) -> int:
    """Says on standard error which process failed first, and why; returns the exit code of the whole.

    What every process complains of comes once; what only others than the first do, with their ranks.
    """
    for text, ranks in mistakes.items():
        print_mistake(text if 0 in ranks else f"[rank {', '.join(map(str, ranks))}] {text}")
    rank, first = min(failures.items(), key=lambda item: (_doubt(item[1]), item[1].timestamp, item[0]))
    if first.exitcode == EXPLAINED:
        return EXPLAINED
    if first.exitcode < 0:
        how = f"was ended by signal {-first.exitcode} ({first.signal_name()})"
        if -first.exitcode == signal.SIGKILL:
            how += "; the machine does that when memory runs out"
        elif -first.exitcode == signal.SIGABRT:
            how += "; NCCL does that when a collective failed or took longer than train.timeout_s, see above"
    else:
        how = f"ended with exit code {first.exitcode}"
    others = " The others were ended." if nproc > 1 else ""
    print(f"rank {rank} (pid {first.pid}) {how}.{others}", file=sys.stderr, flush=True)
    return 128 - first.exitcode if first.exitcode < 0 else first.exitcode


def _doubt(failure: ProcessFailure) -> int:
    """Rank of how likely a process ended only because of another one; the lowest is the likeliest cause."""
    return {-signal.SIGTERM: 2, EXPLAINED: 1}.get(failure.exitcode, 0)


def _end_groups(failures: Mapping[int, ProcessFailure]) -> None:
    """Kills what the failed processes started; each had its own process group."""
    for failure in failures.values():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(failure.pid, signal.SIGKILL)
