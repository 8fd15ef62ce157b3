"""Starting runs on a cluster: Slurm through submitit, Ray through its job API (both installed on demand)."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs.text import ConfigError
from eval.experiments.folder import read_json
from eval.experiments.launch import Handle, Job

SUBMITIT = "pip install submitit"
RAY = 'pip install "ray[default]"'


class Slurm:
    """Jobs of a Slurm cluster, through submitit (`cluster="local"`: its own stand-in, processes)."""

    def __init__(self, folder: Path, options: Mapping[str, str], cluster: str = "slurm") -> None:
        """Uses `folder` for submitit's files; `options` are its parameters, such as slurm_partition.

        Raises:
            ConfigError: submitit is not installed, there is no Slurm here, or it refuses an option.
        """
        try:
            import submitit
        except ImportError as error:
            raise ConfigError(f"--launcher slurm needs submitit: {SUBMITIT}") from error
        self._submitit, self._folder, self._cluster = submitit, folder, cluster
        try:
            self._executor = submitit.AutoExecutor(folder, cluster=cluster)
            self._executor.update_parameters(**{key: _number(value) for key, value in options.items()})
        except (RuntimeError, NameError, TypeError) as error:
            raise ConfigError(f"--launcher slurm: {error}. It is run on a node that has sbatch.") from error

    def start(self, job: Job, slot: int) -> Handle:
        """Submits it; Slurm gives it its GPUs."""
        command = self._submitit.helpers.CommandFunction(_logged(job), verbose=False)
        submitted = self._executor.submit(command)
        _remember(job.log, submitted.job_id)
        return _SlurmJob(submitted)

    def running(self, log: Path) -> Handle | None:
        """Finds the job by the number it was given."""
        number = _remembered(log)
        if number is None or self._cluster != "slurm":
            return None
        job = self._submitit.SlurmJob(self._folder, number)
        return None if job.done() else _SlurmJob(job)


class _SlurmJob:
    def __init__(self, job: Any) -> None:
        self._job = job

    def poll(self) -> int | None:
        return None if not self._job.done() else int(self._job.exception() is not None)

    def stop(self) -> None:
        self._job.cancel()
        while not self._job.done():
            time.sleep(1.0)


class Ray:
    """Jobs of a Ray cluster, through its job API. Runs must see the same files: start it where they lie."""

    def __init__(self, address: str | None, gpus: float) -> None:
        """Connects; `gpus` a run.

        Raises:
            ConfigError: Ray is not installed, or no cluster answers.
        """
        try:
            from ray.job_submission import JobSubmissionClient
        except ImportError as error:
            raise ConfigError(f"--launcher ray needs Ray: {RAY}") from error
        try:
            self._client = JobSubmissionClient(
                address or os.environ.get("RAY_ADDRESS", "http://127.0.0.1:8265")
            )
        except (ConnectionError, RuntimeError) as error:
            raise ConfigError(
                f"--launcher ray: {error}. Start a cluster (`ray start --head`) or name one in RAY_ADDRESS."
            ) from error
        self._gpus = gpus

    def start(self, job: Job, slot: int) -> Handle:
        """Submits it; Ray gives it its GPUs."""
        number = self._client.submit_job(
            entrypoint=f"cd {shlex.quote(os.getcwd())} && {shlex.join(_logged(job))}",
            runtime_env={"env_vars": dict(job.env)},
            entrypoint_num_gpus=self._gpus,
        )
        _remember(job.log, number)
        return _RayJob(self._client, number)

    def running(self, log: Path) -> Handle | None:
        """Finds the job by the number it was given."""
        number = _remembered(log)
        job = None if number is None else _RayJob(self._client, number)
        return job if job and job.known() and job.poll() is None else None


class _RayJob:
    def __init__(self, client: Any, number: str) -> None:
        self._client, self._number = client, number

    def known(self) -> bool:
        return any(job.submission_id == self._number for job in self._client.list_jobs())

    def poll(self) -> int | None:
        status = self._client.get_job_status(self._number)
        return int(str(status) != "SUCCEEDED") if status.is_terminal() else None

    def stop(self) -> None:
        self._client.stop_job(self._number)
        while self.poll() is None:
            time.sleep(1.0)


def _logged(job: Job) -> list[str]:
    """The job's command under a shell that sets its environment and appends what it prints to its log."""
    job.log.parent.mkdir(parents=True, exist_ok=True)
    assigned = [f"{key}={value}" for key, value in job.env.items()]
    line = f"exec env {shlex.join([*assigned, *job.command])} >> {shlex.quote(str(job.log))} 2>&1"
    return ["/bin/sh", "-c", line]


def _remember(log: Path, number: str) -> None:
    log.with_suffix(".job").write_text(f'{{"job": "{number}"}}\n', encoding="utf-8")


def _remembered(log: Path) -> str | None:
    found = read_json(log.with_suffix(".job"))
    return found["job"] if found else None


def _number(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text
