"""The command line. `python run.py --help` teaches it, `commands/cli/` declares it."""

from __future__ import annotations

import os

# Must be set before torch is imported. Waiting threads then sleep instead of spinning, which slows every
# other process on the same cores (two threads on a shared machine: 93 tokens per CPU second spinning, 1,900
# sleeping).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from commands.cli.app import main  # noqa: E402 (see above)

if __name__ == "__main__":
    main()
