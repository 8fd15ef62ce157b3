"""Many trajectories in flight behind one interface: in this process, in worker processes, on servers."""
