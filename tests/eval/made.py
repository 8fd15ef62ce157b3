"""Parquet files of trajectories made elsewhere, for tests of the replay."""

import pyarrow as pa
import pyarrow.parquet as pq


def made(update=1, group="g", trajectories=(("win", 3), ("loss", 2)), **more):
    """Rows of one group: each trajectory (name, steps) walks rooms 0, 1, …; a "win" is paid 10 at its end."""
    return [
        {
            "update": update,
            "group": group,
            "trajectory": name,
            "t": t,
            "reward": 10.0 if "win" in name and t == steps - 1 else 0.0,
            "success": "win" in name,
            "anchor": f"room {t}",
            "action": f"go {t}",
            **more,
        }
        for name, steps in trajectories
        for t in range(steps)
    ]


def written(tmp_path, rows, **options):
    path = tmp_path / "made.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path
