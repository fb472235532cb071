"""What an inspection found: as data, text, pictures and files.

- ``Snapshot``: all figures of one step, and the verdicts on them; prints, shows and saves itself.
- ``JsonLines``, ``TensorBoard``, ``WandB``: writers for ``camapp.Inspector(writers=...)``; ``read_json_lines``.
- ``depth_png``, ``history_png``: gradients and activations over the depth of the network, and over steps.
"""

from camapp.hooks.report.history import history_png
from camapp.hooks.report.json_lines import JsonLines, read_json_lines
from camapp.hooks.report.picture import depth_png
from camapp.hooks.report.records import Snapshot, TensorStatistics, Verdict
from camapp.hooks.report.tensorboard import TensorBoard
from camapp.hooks.report.wandb import WandB
from camapp.hooks.report.writer import Writer

__all__ = [
    "JsonLines",
    "Snapshot",
    "TensorBoard",
    "TensorStatistics",
    "Verdict",
    "WandB",
    "Writer",
    "depth_png",
    "history_png",
    "read_json_lines",
]
