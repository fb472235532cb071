"""How good maps are, on a set of pictures: boxes, runs, reports."""

from __future__ import annotations

from camapp.evaluation.box_files import read_boxes
from camapp.evaluation.boxes import Annotations, Box, PictureBoxes
from camapp.evaluation.records import SummaryRow, Value
from camapp.evaluation.report import Report
from camapp.evaluation.run import evaluate

__all__ = ["Annotations", "Box", "PictureBoxes", "Report", "SummaryRow", "Value", "evaluate", "read_boxes"]
