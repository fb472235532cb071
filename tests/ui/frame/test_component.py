"""Views of our own: made of the files beside them, and nothing is missing in silence."""

from __future__ import annotations

from pathlib import Path

import gradio as gr
import pytest
from gradio import component_meta

from camapp.ui.frame import classes
from camapp.ui.frame.component import own_component, view


def test_a_view_is_made_of_the_files_of_its_name(tmp_path: Path) -> None:
    for ending, text in ((".html", "<b></b>"), (".js", "watch()"), (".css", "b {}")):
        (tmp_path / f"bold{ending}").write_text(text)
    made = view(tmp_path, "bold", value=3, elem_id="x")
    assert isinstance(made, gr.HTML)
    assert (made.html_template, made.js_on_load, made.css_template) == ("<b></b>", "watch()", "b {}")
    assert (made.value, made.elem_id) == (3, "x")
    (tmp_path / "bold.css").unlink()
    assert view(tmp_path, "bold", html_template="<i></i>").html_template == "<i></i>"


@pytest.mark.parametrize("missing", [".html", ".js"])
def test_a_file_that_is_missing_is_an_error(tmp_path: Path, missing: str) -> None:
    for ending in {".html", ".js"} - {missing}:
        (tmp_path / f"bold{ending}").write_text("")
    with pytest.raises(FileNotFoundError, match=f"bold{missing}"):
        view(tmp_path, "bold")


def test_gradio_writes_nothing_where_a_component_is_made_and_may_again_after_it() -> None:
    before, stub = component_meta.create_or_modify_pyi, Path(__file__).with_suffix(".pyi")
    with own_component():

        class Mine(gr.HTML):
            is_template = True

    assert not stub.exists()
    assert component_meta.create_or_modify_pyi is before
    assert isinstance(view(Path(classes.__file__).parent, "classes", kind=Mine, title="", specials=[]), Mine)
