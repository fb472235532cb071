"""A small batch, explained one picture at a time while somebody watches: what came in, what became of it, one .zip."""

from camapp.batch.live.archive import Encoded, ResultsArchive
from camapp.batch.live.class_table import ClassTable
from camapp.batch.live.explaining import Outcome, PictureExplainer, explain_each
from camapp.batch.live.given import Given, GivenLimits, pictures_given

__all__ = [
    "ClassTable",
    "Encoded",
    "Given",
    "GivenLimits",
    "Outcome",
    "PictureExplainer",
    "ResultsArchive",
    "explain_each",
    "pictures_given",
]
