"""Reports: every file reads back as what was measured, and the text says it right."""

from __future__ import annotations

import ast
import csv
import io
import json
import math
from dataclasses import asdict, fields, replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from PIL import Image

import camapp.evaluation
from camapp.errors import UsageError
from camapp.evaluation import Report, SummaryRow, Value
from camapp.evaluation.figures import curves_png, line_styles, maps_jpg
from camapp.evaluation.markdown import number
from camapp.evaluation.records import Curve, Example, Failure
from camapp.evaluation.saving import FILES

NAN = math.nan
AWKWARD = 'a, "b"\n|c| кот.jpg'


def row(method: str, metric: str, value: float, direction: str = "lower", **others: Any) -> SummaryRow:
    return SummaryRow(
        kind=others.pop("kind", "method"),
        method=method,
        layer=others.pop("layer", "layer4"),
        metric=metric,
        title=others.pop("title", metric.title()),
        scale=others.pop("scale", ""),
        direction=direction,
        value=value,
        standard_error=others.pop("error", 0.01),
        pictures=2,
        blanks=others.pop("blanks", 0),
        refused=0,
        seconds_per_picture=0.0123,
    )


def a_report(**changes: Any) -> Report:
    values = (
        Value("1.jpg", "gradcam", "layer4", "deletion", 0.1 + 0.2, 281, "tabby, tabby cat", None),
        Value(AWKWARD, "gradcam", "layer4", "deletion", NAN, 7, "cock", 'refused: "x" | y', "refused"),
        Value("1.jpg", "center", "", "deletion", 1 / 3, 281, "tabby, tabby cat", None),
    )
    summary = (
        row("gradcam", "deletion", 0.25),
        row("layercam", "deletion", 0.125, error=NAN),
        row("gradcam", "energy", 61.26, "higher", scale="%"),
        row("layercam", "energy", 40.04, "higher", scale="%"),
        row("center", "deletion", 0.01, kind="baseline", layer=""),
        row("center", "energy", 99.0, "higher", kind="baseline", layer="", scale="%"),
    )
    x = (0.0, 0.5, 1.0)
    curves = tuple(
        Curve(
            "baseline" if method == "center" else "method", method, "layer4", "deletion", "Deletion", x, (0.9, y, 0.0)
        )
        for method, y in (("gradcam", 0.2), ("layercam", 0.1), ("center", 0.4))
    )
    heat = np.linspace(0, 1, 32 * 32, dtype=np.float32).reshape(32, 32)
    example = Example(
        "1.jpg", "tabby", np.full((32, 32, 3), 99, np.uint8), [[2, 2, 9, 9]], {("gradcam", "layer4"): heat}
    )
    report = Report(
        model="resnet",
        weights={"source": "a file", "sha256": "ab" * 32, "random": False},
        settings={"methods": ["gradcam", "layercam"], "target": "tabby", "limit": None},
        versions={"torch": "2"},
        pictures=("1.jpg", AWKWARD),
        failures=(Failure("bad.jpg", "The file is empty."),),
        values=values,
        summary=summary,
        curves=curves,
        examples=(example,),
        metrics={"deletion": "how fast | the score falls", "energy": "in the box"},
        notes=("2 picture(s): letterboxed",),
    )
    return replace(report, **changes)


def as_rows(items: Any) -> list[dict[str, Any]]:
    return [{key: None if value != value else value for key, value in asdict(one).items()} for one in items]


def test_parquet_reads_back_as_what_was_measured(tmp_path: Path) -> None:
    a_report().save(tmp_path)
    table = pyarrow.parquet.read_table(tmp_path / "values.parquet")
    assert table.column_names == ["picture", "method", "layer", "metric", "value", "target", "label", "reason", "state"]
    assert table.to_pylist() == as_rows(a_report().values)
    assert str(table.schema.field("value").type) == "double"
    assert a_report().table().to_pylist() == as_rows(a_report().summary)


def test_csv_reads_back_to_the_last_bit_with_commas_quotes_and_line_ends_in_names(tmp_path: Path) -> None:
    a_report().save(tmp_path)
    for name, items in (("values.csv", a_report().values), ("summary.csv", a_report().summary)):
        read = list(csv.DictReader(io.StringIO((tmp_path / name).read_bytes().decode(), newline="")))
        expected = as_rows(items)
        assert [list(one) for one in read] == [list(one) for one in expected]
        for found, wanted in zip(read, expected, strict=True):
            for key, value in wanted.items():
                assert found[key] == ("" if value is None else str(value))
                assert not isinstance(value, float) or float(found[key]) == value
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    assert pyarrow.csv.read_csv(tmp_path / "values.csv", parse_options=options).num_rows == 3


def test_json_holds_the_summary_without_nan_and_everything_to_run_it_again(tmp_path: Path) -> None:
    a_report().save(tmp_path)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    read = json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse)
    assert read["summary"] == as_rows(a_report().summary)
    assert read["weights"]["sha256"] == "ab" * 32
    assert read["settings"] == a_report().settings
    assert read["failures"] == [{"picture": "bad.jpg", "reason": "The file is empty."}]


def test_the_table_points_the_right_way_and_marks_the_best_of_the_methods_not_of_the_baselines() -> None:
    text = a_report().markdown()
    assert "| method | layer | Deletion ↓ | Energy % ↑ |" in text
    assert "| gradcam | `layer4` | 0.250 ± 0.010 | **61.3** ± 0.0 |" in text
    assert "| layercam | `layer4` | **0.125** | 40.0 ± 0.0 |" in text
    assert "| *center* |  | 0.010 ± 0.010 | 99.0 ± 0.0 |" in text
    assert text.index("layercam") < text.index("*baselines*") < text.index("*center*")
    assert "skipped `bad.jpg`: The file is empty." in text
    assert "letterboxed" in text
    assert "ab" * 32 in text


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    lines = a_report().markdown().splitlines()
    counts = [line.replace("\\|", "").count("|") if line.startswith("|") else 0 for line in lines]
    tables = [
        count for count, before in zip(counts, [0, *counts], strict=False) if count and before and count != before
    ]
    assert tables == []


def test_what_was_refused_is_known_by_its_state_not_by_its_words() -> None:
    said = "refused: a reason that only sounds like it"
    values = (Value("1.jpg", "gradcam", "layer4", "deletion", 0.5, 1, "a", said),)
    assert said not in a_report(values=values).markdown()
    refused = (replace(values[0], state="refused", reason="no attention"),)
    assert "- gradcam at `layer4` no attention" in a_report(values=refused).markdown()


def test_random_weights_are_loud() -> None:
    random = a_report(weights={"source": "random", "sha256": None, "random": True})
    assert "RANDOM WEIGHTS" in random.markdown()
    assert "RANDOM WEIGHTS" not in a_report().markdown()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.25, "0.250"),
        (61.26, "61.3"),
        (0.0, "0.000"),
        (NAN, "–"),
        (1.2e-5, "1.20e-05"),
        (-0.5, "-0.500"),
        (3e6, "3.00e+06"),
    ],
)
def test_numbers_are_as_long_as_they_tell_something(value: float, text: str) -> None:
    assert number(value) == text


def test_a_report_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    written = a_report().save(out)
    assert sorted(path.name for path in written) == sorted(path.name for path in out.iterdir()) == sorted(FILES)
    before = (out / "report.md").read_bytes()
    with pytest.raises(UsageError, match=r"holds a report already .*--overwrite"):
        a_report(model="other").save(out)
    assert (out / "report.md").read_bytes() == before
    a_report(model="other", curves=(), examples=()).save(out, overwrite=True)
    assert "# other" in (out / "report.md").read_text()
    assert not (out / "curves.png").exists(), "of the report before"
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file; a report is a folder"):
        a_report().save(tmp_path / "file")


def test_an_interrupt_while_writing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes

    def interrupted(path: Path, content: bytes) -> int:
        if "summary.json" in path.name:
            raise KeyboardInterrupt
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        a_report().save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_curves_are_a_picture_with_every_line_in_it_and_none_without_curves() -> None:
    assert curves_png([]) is None
    assert curves_png([replace(a_report().curves[0], metric="max_box_acc")]) is None
    content = curves_png(a_report().curves)
    assert content
    pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).reshape(-1, 3)
    for color in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x66, 0x66, 0x66)):
        assert (np.abs(pixels.astype(int) - color).max(1) < 3).sum() > 100, color


def test_no_two_of_28_methods_are_drawn_alike_and_baselines_are_grey_and_dashed() -> None:
    curve = a_report().curves[0]
    curves = [replace(curve, method=f"m{k}") for k in range(28)]
    curves += [replace(curve, method=name, layer="", kind="baseline") for name in ("center", "random", "uniform")]
    drawn = line_styles(curves)
    assert len({(str(one["color"]), str(one["linestyle"])) for one in drawn.values()}) == 31
    for name in ("center", "random", "uniform"):
        grey = drawn[name, ""]
        assert len({grey["color"][1:3], grey["color"][3:5], grey["color"][5:7]}) == 1
        assert grey["linestyle"] != "-"


def test_the_sheet_of_maps_shows_pictures_and_maps_and_is_left_out_without_maps() -> None:
    assert maps_jpg([]) is None
    assert maps_jpg([replace(a_report().examples[0], maps={})]) is None
    two = [*a_report().examples, replace(a_report().examples[0], maps={("other", "x"): np.zeros((32, 32), np.float32)})]
    content = maps_jpg(two)
    assert content
    with Image.open(io.BytesIO(content)) as sheet:
        assert sheet.format == "JPEG"
        assert sheet.width > sheet.height, "two pictures down, and across each with two maps"


def test_the_columns_are_the_fields() -> None:
    assert [field.name for field in fields(Value)] == a_report().values_table().column_names
    assert "Report(resnet, 2 pictures: gradcam, layercam)" in repr(a_report())


def test_no_module_of_the_room_imports_in_a_circle_not_even_within_a_function() -> None:
    room = "camapp.evaluation."
    graph = {}
    for path in Path(camapp.evaluation.__file__).parent.glob("*.py"):
        imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        graph[path.stem] = {str(one.module).removeprefix(room) for one in imports if str(one.module).startswith(room)}
    assert graph["report"] >= {"markdown", "records"}
    assert tuple(TopologicalSorter(graph).static_order()), "CycleError names the circle"
