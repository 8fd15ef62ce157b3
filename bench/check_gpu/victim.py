"""A rank that waits for the others again and again, until one of them is killed. Run under a launcher."""

import os
import sys
import time
from pathlib import Path

from rl.learner.processes import Channel, join

join(60.0)
channel = Channel(60.0)
Path(sys.argv[1], str(channel.rank)).write_text(str(os.getpid()))
while True:
    channel.gather(channel.rank)
    time.sleep(0.05)
