"""Tables with token columns for the tests of stages that read a teacher."""

import numpy as np

from credit.pipeline import Pipeline
from credit.table import StepTable

NAN = float("nan")
TEACHERS = ("logp_peer", "logp_hindsight")
BASE = {"grpo": {"norm": "mean"}}


def table_with_gaps(trajectories, **columns):
    """From [(success, [gaps of each token of a step, …]), …], one group; success is worth 10.

    The sampler's log-probability is -1 everywhere, so that both teachers' columns are the gaps less 1.
    """
    steps = [
        (k, t, success, gaps, t == len(path) - 1)
        for k, (success, path) in enumerate(trajectories)
        for t, gaps in enumerate(path)
    ]
    gap = np.array([g for step in steps for g in step[3]], dtype=float)
    names = {"trajectory": 0, "t": 1, "success": 2}
    table = {name: [step[i] for step in steps] for name, i in names.items()} | {
        "group": [0] * len(steps),
        "reward": [10.0 * (step[2] and step[4]) for step in steps],
        "outcome": [10.0 * step[2] for step in steps],
        "anchor": ["here"] * len(steps),
        "length": [len(step[3]) for step in steps],
        "tokens": {"logp_sampled": np.full(len(gap), -1.0)} | {name: gap - 1.0 for name in TEACHERS},
    }
    return StepTable(**(table | columns))


def random_columns(seed, *, scale=1.0, unknown=0.2, empty=True):
    """Columns of up to three groups with random lengths and gaps; `unknown` tokens have no teacher."""
    rng = np.random.default_rng(seed)
    rows, trajectory = [], 0
    for group in range(rng.integers(1, 4)):
        for _ in range(rng.integers(1, 6)):
            success, count = rng.random() < 0.5, rng.integers(1, 6)
            rows += [(group, trajectory, t, success, t == count - 1) for t in range(count)]
            trajectory += 1
    length = rng.integers(0 if empty else 1, 7, len(rows))
    total = int(length.sum())
    tokens = {"logp_sampled": -rng.exponential(1.0, total)}
    for name in TEACHERS:
        gap = rng.normal(0.0, scale, total)
        tokens[name] = tokens["logp_sampled"] + np.where(rng.random(total) < unknown, NAN, gap)
    return {
        "group": [row[0] for row in rows],
        "trajectory": [row[1] for row in rows],
        "t": [row[2] for row in rows],
        "success": [row[3] for row in rows],
        "reward": [10.0 * (row[3] and row[4]) for row in rows],
        "outcome": [10.0 * row[3] for row in rows],
        "anchor": [f"place {rng.integers(3)}" for _ in rows],
        "action": [str(rng.integers(3)) for _ in rows],
        "valid": (rng.random(len(rows)) < 0.8).tolist(),
        "length": length.tolist(),
        "tokens": tokens,
    }


def reordered(columns, order):
    """The same rows, and their tokens, in another order."""
    table = StepTable(**columns)
    index = table.token_index(np.asarray(order, dtype=int))
    changed = {name: [values[i] for i in order] for name, values in columns.items() if name != "tokens"}
    return changed | {"tokens": {name: values[index] for name, values in columns["tokens"].items()}}


def run(stages, table, services=None, *, step=0, seed=3):
    """The method's result, `returns` put in front."""
    method = Pipeline.from_config({"returns": {}, **stages}, "tested")
    return method.run(table, services, step=step, seed=seed)


def advantages(stage, options, table, **more):
    """One advantage a token of the stage on the base, whatever it speaks in."""
    return _by_token(run({**BASE, stage: options}, table, **more), table)


def base(table):
    """One advantage a token of the base alone."""
    return _by_token(run(BASE, table), table)


def _by_token(result, table):
    if result.token_advantage is not None:
        return result.token_advantage
    return np.repeat(result.advantage, table.length)
