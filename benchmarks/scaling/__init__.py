"""From what stages cost on this machine to what exports of any size cost on others, by simulation."""

from benchmarks.scaling.command import main

__all__ = ["main"]
