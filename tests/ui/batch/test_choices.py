"""What a visitor asks of a batch: choices that nobody vouches for, refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from camapp.errors import CamappError, UsageError
from camapp.ui.batch.choices import BatchChoices
from camapp.ui.batch.files import NamedFile
from camapp.ui.frame.models import ModelPool

MODEL = "efficientnet_lite0"


def choices(folder: Path, **options: Any) -> BatchChoices:
    return BatchChoices([NamedFile(folder / "upload-1.jpg", "cat.jpg")], **{"model": MODEL, **options})


def table(folder: Path, text: str) -> NamedFile:
    (folder / "t.csv").write_text(text)
    return NamedFile(folder / "t.csv", "classes.csv")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "<b>no</b>"}, 'Model "<b>no</b>" is not available'),
        ({"method": ""}, 'No method ""'),
        ({"method": "__class__"}, "No method"),
        ({"layers": ["nowhere"]}, "nowhere"),
        ({"layers": ["a", "b", "c", "d"]}, "4 layers are too many"),
        ({"target": 10_000}, "no class 10000"),
        ({"target": "unicorn"}, "unicorn"),
    ],
)
def test_what_does_not_exist_is_refused(options: dict[str, Any], said: str, pool: ModelPool, tmp_path: Path) -> None:
    with pytest.raises(CamappError, match=said):
        choices(tmp_path, **options).explainer(pool, None)


def test_outputs_are_known_ones_and_at_least_one(tmp_path: Path) -> None:
    assert choices(tmp_path, outputs=["raw", "overlay"]).checked_outputs() == ("overlay", "raw")
    with pytest.raises(UsageError, match=r'no output "\.\./x"'):
        choices(tmp_path, outputs=["../x"]).checked_outputs()
    with pytest.raises(UsageError, match="Nothing is to go into the archive"):
        choices(tmp_path, outputs=[]).checked_outputs()


def test_pictures_bear_the_names_that_their_owners_know(tmp_path: Path) -> None:
    assert [item.name for item in choices(tmp_path).given().items] == ["cat.jpg"]


def test_a_table_counts_instead_of_the_class_chosen(pool: ModelPool, tmp_path: Path) -> None:
    asked = choices(tmp_path, target=3, table=table(tmp_path, "file,class\nCat.JPG,281\n"))
    classes = asked.classes(asked.given())
    assert classes is not None
    _, explainer = asked.explainer(pool, classes)
    assert explainer.settings()["targets"] == {"cat.jpg": "281"}
    assert explainer.target is None


def test_a_table_that_knows_none_of_the_pictures_is_refused(tmp_path: Path) -> None:
    asked = choices(tmp_path, table=table(tmp_path, "file,class\ndog.jpg,281\n"))
    with pytest.raises(UsageError, match=r'begins with "dog\.jpg", the pictures with "cat\.jpg"'):
        asked.classes(asked.given())


def test_the_recommended_layer_means_the_methods_own_choice(pool: ModelPool, tmp_path: Path) -> None:
    best = next(layer.name for layer in pool.layers(MODEL) if layer.recommended)
    other = next(layer.name for layer in pool.layers(MODEL) if not layer.recommended)
    assert choices(tmp_path, layers=[best]).explainer(pool, None)[1].settings()["layer"] == []
    assert choices(tmp_path, layers=[other]).explainer(pool, None)[1].settings()["layer"] == [other]
    assert choices(tmp_path, layers=[best], exact=True).explainer(pool, None)[1].settings()["layer"] == [best]
