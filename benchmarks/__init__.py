"""Speed and memory as ratios: to the peers and to the physical limit, in one process, on the same inputs."""
