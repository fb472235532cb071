"""The command line, mostly as real processes: what a shell sees is what is tested."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import camapp
from camapp import cli
from camapp.resources import resource_folder
from tests.images.odd_pictures import ODD_PICTURES

CATS = {281, 282, 285}
ASSETS = resource_folder("assets")


def run(*arguments: object, stdin: bytes | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """``camapp ARGUMENTS`` as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "camapp", *map(str, arguments)],
        input=stdin.decode("latin-1") if stdin else None,
        capture_output=True,
        encoding="latin-1" if stdin else "utf-8",
        env={**os.environ, "COLUMNS": "80", **environment},
        check=False,
    )


def size_of(path: str | Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def in_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    """``camapp ARGUMENTS`` within this process, which saves the seconds of importing torch."""
    monkeypatch.setattr(sys, "argv", ["camapp", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out, printed.err


def test_explain_prints_one_json_object_a_picture_and_writes_what_it_names(tmp_path: Path) -> None:
    cat, coffee = ASSETS / "chelsea.jpg", ASSETS / "coffee.jpg"
    done = run("explain", cat, coffee, "--top-k", 2, "--json", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert list(first) == ["input", "model", "method", "layer", "predictions", "maps", "notes", "seconds"]
    assert first["input"] == str(cat)
    assert first["predictions"][0]["index"] in CATS
    assert len(first["maps"]) == 2
    for shown in first["maps"]:
        assert list(shown) == ["target", "label", "overlay", "heatmap", "peak", "reason"]
        assert size_of(shown["overlay"]) == size_of(cat)
        assert size_of(shown["heatmap"]) == size_of(cat)
        assert 90 < shown["peak"][0] < 360
        assert 20 < shown["peak"][1] < 290
    assert second["predictions"][0]["label"] == "espresso"


def test_the_shell_and_python_give_the_same_pixels(tmp_path: Path) -> None:
    run("explain", ASSETS / "chelsea.jpg", "--target", "tabby", "--out", tmp_path)
    explanation = camapp.explain("efficientnet_lite0", ASSETS / "chelsea.jpg", targets="tabby")
    shell = np.load(tmp_path / "chelsea-1-tabby.npy")
    np.testing.assert_allclose(shell, explanation.maps[0], atol=1e-5)
    painted = np.asarray(Image.open(tmp_path / "chelsea-1-tabby.overlay.png")).astype(int)
    assert np.abs(painted - np.asarray(explanation.overlay()).astype(int)).max() <= 1


def test_what_sets_two_classes_apart_is_written_too_and_is_that_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cat = ASSETS / "chelsea.jpg"
    call = ("explain", cat, "--target", "tabby", "--target", "lynx", "--contrast", "--out", tmp_path)
    code, printed, _ = in_process(monkeypatch, capsys, *call)
    assert code == 0
    assert "tabby − lynx: orange speaks for the first" in printed
    explanation = camapp.explain("efficientnet_lite0", cat, targets=["tabby", "lynx"])
    expected = camapp.Contrast(explanation).heatmap()
    np.testing.assert_array_equal(np.load(tmp_path / "chelsea-difference.npy"), expected)
    code, printed, _ = in_process(monkeypatch, capsys, *call, "--json")
    assert Path(json.loads(printed)["contrast"]["overlay"]).is_file()


@pytest.mark.parametrize("targets", [(), ("--target", "tabby"), ("--top-k", "3"), ("-t", "1", "-t", "2", "-t", "3")])
def test_a_contrast_of_anything_but_two_classes_is_refused(
    targets: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ("explain", ASSETS / "chelsea.jpg", "--contrast", *targets, "--out", tmp_path / "new")
    code, _, complained = in_process(monkeypatch, capsys, *call)
    assert code == 2
    assert "give two" in complained
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_every_odd_picture_is_explained_or_refused_in_one_line_and_the_good_ones_are_done(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    paths = {odd.write(folder): odd for odd in ODD_PICTURES}
    done = run("explain", *paths, folder / "missing.jpg", ASSETS / "chelsea.jpg", "--json", "--out", tmp_path / "out")
    assert done.returncode == 3, done.stderr
    objects = {one["input"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert len(objects) == len(paths) + 2, "one object for every input"
    complaints = [line for line in done.stderr.splitlines() if line.startswith("camapp: ")]
    for path, odd in paths.items():
        shown = objects[str(path)]
        if odd.refusal:
            assert re.search(odd.refusal, shown["error"]), (odd.file, shown)
            assert [line for line in complaints if line == f"camapp: {path}: {shown['error']}"], odd.file
        else:
            assert size_of(shown["maps"][0]["overlay"]) == odd.size, odd.file
            for note in odd.notes:
                assert any(re.search(note, one) for one in shown["notes"]), (odd.file, note, shown["notes"])
    refused = sum(bool(odd.refusal) for odd in paths.values())
    assert refused >= 8
    assert objects[str(folder / "missing.jpg")]["error"].startswith("No such file")
    assert objects[str(ASSETS / "chelsea.jpg")]["predictions"][0]["index"] in CATS
    assert complaints[-1].startswith(f"camapp: {refused + 1} of {len(objects)} pictures failed")
    assert "Traceback" not in done.stderr


def test_files_of_one_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "Cat.jpg").write_bytes((ASSETS / "chelsea.jpg").read_bytes())
    done = run("explain", tmp_path / "a" / "Cat.jpg", tmp_path / "b" / "Cat.jpg", "--json", "--out", tmp_path / "out")
    overlays = [json.loads(line)["maps"][0]["overlay"] for line in done.stdout.splitlines()]
    assert len(set(overlays)) == 2
    assert all(Path(overlay).is_file() for overlay in overlays)


def test_a_picture_comes_from_standard_input(tmp_path: Path) -> None:
    done = run("explain", "-", "--json", "--out", tmp_path, stdin=(ASSETS / "chelsea.jpg").read_bytes())
    assert json.loads(done.stdout)["predictions"][0]["index"] in CATS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "tabi"], r'has no class "tabi"\. Did you mean .*tabby'),
        (["--target", "1000"], "1000"),
        (["--layer", "bn22"], r'No layer "bn22" in EfficientNet\. Did you mean .*bn2'),
        (["--method", "gradcm"], "Did you mean gradcam"),
        (["--model", "efficientnet_lite9"], "Did you mean .*efficientnet_lite0"),
        (["--top-k", "0"], "top k = 0"),
        (["--top-k", "2", "--target", "tabby"], "exclude each other"),
        (["--alpha", "2"], r"alpha = 2\.0 is not between 0 and 1"),
        (["--colormap", "virdis"], "Did you mean viridis"),
        (["--fit", "zoom"], "crop, letterbox, stretch"),
        (["--device", "cuda:99"], "cuda:99"),
        (["--models", "/no/such/folder"], "does not exist"),
    ],
)
def test_wrong_options_end_in_one_line_and_exit_2_before_anything_is_written(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    code, printed, complaint = in_process(
        monkeypatch, capsys, "explain", ASSETS / "chelsea.jpg", "--out", out, *arguments
    )
    assert code == 2
    assert printed == ""
    assert complaint.startswith("camapp: ")
    assert complaint.count("\n") == 1
    assert re.search(message, complaint)
    assert not out.exists()


@pytest.mark.parametrize("arguments", [["--top-k", "2000"], ["--layer", "classifier"]])
def test_options_that_only_the_first_picture_shows_to_be_wrong_leave_no_folder_either(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    code, _, complaint = in_process(monkeypatch, capsys, "explain", ASSETS / "chelsea.jpg", "--out", out, *arguments)
    assert code == 2
    assert complaint.count("\n") == 1
    assert not out.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such file names")
@pytest.mark.parametrize("encoding", [pytest.param("utf-8", marks=pytest.mark.slow), "ascii"])
def test_names_that_the_terminal_cannot_show_stop_nothing(encoding: str, tmp_path: Path) -> None:
    for name in (b"\xff.jpg", "кот \N{CAT}.jpg".encode()):
        (tmp_path / os.fsdecode(name)).write_bytes((ASSETS / "chelsea.jpg").read_bytes())
    names = sorted(tmp_path.glob("*.jpg"))
    done = run("explain", *names, "--json", "--out", tmp_path / "out", PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["input"] for one in objects] == [str(name) for name in names]
    plain = run("explain", *names, "--out", tmp_path / "out", PYTHONIOENCODING=encoding)
    assert plain.returncode == 0, plain.stderr


def test_closed_standard_input_is_a_failed_picture(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "camapp", "explain", "-", "--out", tmp_path],
        preexec_fn=lambda: os.close(0),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "1 of 1 pictures failed\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_weights_end_in_exit_1_and_say_which_file_to_place_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CAMAPP_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr("camapp.backbones.weights._unreachable", lambda url: "there is no network in this test")
    code, _, complaint = in_process(monkeypatch, capsys, "explain", ASSETS / "chelsea.jpg", "--model", "resnet50")
    assert code == 1
    assert f"place it as {tmp_path / 'weights' / 'resnet50-11ad3fa6.pth'}" in complaint
    assert "--random-weights" in complaint


def test_random_weights_are_loud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed, complaint = in_process(
        monkeypatch,
        capsys,
        *(
            "explain",
            ASSETS / "chelsea.jpg",
            "--model",
            "mobilenet_v3_large",
            "--random-weights",
            "--json",
            "--out",
            tmp_path,
        ),
    )
    assert code == 0
    assert "RANDOM WEIGHTS" in complaint
    shown = json.loads(printed)
    assert shown["random_weights"] is True
    assert shown["notes"][0].startswith("random weights")


@pytest.mark.skipif(os.getuid() == 0 if hasattr(os, "getuid") else False, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_one_line_and_exit_1(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = run("explain", ASSETS / "chelsea.jpg", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "Permission denied" in done.stderr


def test_an_output_that_is_a_file_is_one_line_and_exit_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("a file")
    code, _, complaint = in_process(monkeypatch, capsys, "explain", ASSETS / "chelsea.jpg", "--out", tmp_path / "out")
    assert code == 1
    assert re.fullmatch(r"camapp: .*exists: .*out\n", complaint)


def test_models_says_what_there_is_and_what_is_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed, _ = in_process(monkeypatch, capsys, "models", "--json")
    models = {one["name"]: one for one in json.loads(printed)}
    assert code == 0
    assert len(models) >= 12
    assert models["efficientnet_lite0"]["here"] is True
    assert models["resnet50"]["input"] == [224, 224]
    code, table, _ = in_process(monkeypatch, capsys, "models")
    assert all(name in table for name in models)
    assert "…" not in table


def test_layers_marks_the_recommended_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _, table, _ = in_process(monkeypatch, capsys, "layers", "efficientnet_lite0")
    marked = [line for line in table.splitlines() if "<- recommended" in line]
    assert [line.split()[:4] for line in marked] == [["bn2", "BatchNormAct2d", "1280x7x7", "7x7"]]
    _, printed, _ = in_process(monkeypatch, capsys, "layers", "vit_small_patch16_224", "--maps", "--json")
    layers = json.loads(printed)
    assert all(one["grid"] for one in layers)
    assert [one["name"] for one in layers if one["recommended"]] == ["blocks.11.norm1"]


def test_layers_says_what_each_layer_costs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _, table, _ = in_process(monkeypatch, capsys, "layers", "efficientnet_lite0")
    (head,) = (line for line in table.splitlines() if line.startswith("conv_head "))
    macs = 320 * 1280 * 7 * 7
    assert head.split()[-2:] == ["409,600", f"{macs / 385_187_552:.1%}"]
    assert "4,652,008 parameters; 385 million multiply-accumulates at 224x224" in table
    _, printed, _ = in_process(monkeypatch, capsys, "layers", "efficientnet_lite0", "--json")
    (facts,) = (one for one in json.loads(printed) if one["name"] == "conv_head")
    assert facts["macs"] == macs


def test_channels_are_ranked_saved_and_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wanted = [
        "channels",
        ASSETS / "chelsea.jpg",
        "conv_head",
        "--ranking",
        "gradient",
        "--target",
        "tabby",
        "--most",
        "3",
    ]
    code, printed, _ = in_process(monkeypatch, capsys, *wanted, "--out", tmp_path / "out")
    assert code == 0
    assert printed.splitlines()[0] == "conv_head 1280x7x7, by gradient for tabby"
    facts = json.loads((tmp_path / "out" / "channels.json").read_text())
    best = [one["channel"] for one in facts["channels"][:3]]
    rows = [line.split() for line in printed.splitlines() if line.strip()[:1].isdigit() and "dead" not in line]
    assert [int(row[0]) for row in rows] == best
    code, printed, _ = in_process(monkeypatch, capsys, *wanted, "--json")
    assert [one["channel"] for one in json.loads(printed)["channels"]] == best
    code, _, complaint = in_process(monkeypatch, capsys, *wanted, "--out", tmp_path / "out")
    assert code == 2
    assert "holds a report already" in complaint


def test_an_interrupt_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "camapp", "explain", *[ASSETS / "chelsea.jpg"] * 500, "--out", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in complaint
    assert not list(tmp_path.glob(".*.part"))


def test_no_command_shows_the_help_and_an_unknown_one_is_exit_2() -> None:
    assert "Usage: camapp" in run().stderr
    assert run("explian").returncode == 2
    assert run("--version").stdout.strip() == f"camapp {camapp.__version__}"


def test_any_method_may_be_asked_for_and_chooses_its_own_layers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cat = ASSETS / "chelsea.jpg"
    code, printed, _ = in_process(
        monkeypatch, capsys, "explain", cat, "--method", "fused", "--json", "--out", tmp_path / "fused"
    )
    assert code == 0
    facts = json.loads(printed)
    assert facts["method"] == "fused"
    assert facts["layer"] == "bn2 + blocks.6.0.bn1 + blocks.5.0.bn1"
    assert facts["maps"][0]["target"] in CATS
    code, printed, _ = in_process(
        monkeypatch,
        capsys,
        *("explain", cat, "--method", "GradCAM++", "--layer", "bn2", "--layer", "blocks.5.0.bn1"),
        *("--sign", "negative", "--normalize", "max", "--json", "--out", tmp_path / "several"),
    )
    assert code == 0
    assert json.loads(printed)["layer"] == "bn2 + blocks.5.0.bn1"
    for options in (("--sign", "both"), ("--normalize", "none"), ("--method", "gradcamm")):
        code, _, complaint = in_process(monkeypatch, capsys, "explain", cat, *options, "--out", tmp_path / "none")
        assert code == 2
        assert complaint.startswith("camapp: ")
    assert not (tmp_path / "none").exists()


def test_a_method_that_takes_too_long_has_failed_and_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = ("--method", "scorecam", "--deadline", "0.05", "--json", "--out", tmp_path)
    code, printed, complaint = in_process(monkeypatch, capsys, "explain", ASSETS / "chelsea.jpg", *options)
    assert code == 3
    assert "Not done within 0.05 s" in json.loads(printed)["error"]
    assert "1 of 1 pictures failed" in complaint
    assert not list(tmp_path.iterdir())


def test_methods_lists_each_with_what_it_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from camapp.cam import METHODS

    _, printed, _ = in_process(monkeypatch, capsys, "methods")
    assert [line.split()[0] for line in printed.splitlines()[1:]] == list(METHODS)
    _, printed, _ = in_process(monkeypatch, capsys, "methods", "--json")
    rows = json.loads(printed)
    assert {row["name"] for row in rows if not row["takes_layer"]} == {
        "fullgrad",
        "guidedbackprop",
        "legrad",
        "rollout",
    }
    assert all(row["summary"].endswith(".") for row in rows), "each first line of a docstring is a sentence"
    assert not [row for row in rows if ":math:" in row["summary"]]


def test_inspect_prints_a_table_of_all_layers_and_writes_what_it_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, printed, complaint = in_process(monkeypatch, capsys, "inspect", ASSETS / "chelsea.jpg", "--out", out)
    assert (code, complaint) == (0, "")
    lines = printed.splitlines()
    assert re.match(r"chelsea\.jpg: (tabby|tiger cat|Egyptian cat), \d", lines[0])
    assert re.match(r"efficientnet_lite0 on 1 picture, score \d+\.\d+: ", lines[2])
    rows = {line.split()[0] for line in lines if line.strip()}
    assert {"conv_stem", "blocks.6.0.conv_pwl", "classifier", "classifier.weight"} <= rows
    assert lines[-3:] == [str(out / name) for name in ("snapshot.json", "table.txt", "depth.png")]
    assert (out / "table.txt").read_text().splitlines() == lines[:-3]
    code, _, complaint = in_process(monkeypatch, capsys, "inspect", ASSETS / "chelsea.jpg", "--out", out)
    assert code == 2
    assert "--overwrite" in complaint


def test_inspect_takes_what_can_be_read_and_ends_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.jpg").write_bytes((ASSETS / "chelsea.jpg").read_bytes())
    (tmp_path / "b.jpg").write_bytes(b"no picture")
    (tmp_path / "c.jpg").write_bytes((ASSETS / "coffee.jpg").read_bytes())
    code, printed, complaint = in_process(
        monkeypatch, capsys, "inspect", tmp_path, "--layers", "conv_stem,blocks[-1:]", "--target", "espresso", "--json"
    )
    assert code == 3
    assert [line.partition(": ")[0] for line in complaint.splitlines()] == ["camapp", "camapp"]
    assert "b.jpg: " in complaint
    assert "1 of 3 pictures failed; the inspection is of the others" in complaint
    facts = json.loads(printed)
    assert [(one["name"], one["target"]) for one in facts["pictures"]] == [("a.jpg", "espresso"), ("c.jpg", "espresso")]
    assert [one["name"] for one in facts["statistics"] if one["of"] == "gradient"] == ["conv_stem", "blocks.6"]
    code, printed, complaint = in_process(monkeypatch, capsys, "inspect", tmp_path / "b.jpg")
    assert (code, printed) == (3, "")
    assert complaint.startswith("camapp: None of 1 picture(s) can be read")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "tabi"], r'has no class "tabi"\. Did you mean .*tabby'),
        (["--layers", "bn22"], r'No layer "bn22" in EfficientNet'),
        (["--batch-size", "0"], "batch_size = 0"),
        (["--fit", "zoom"], "crop, letterbox, stretch"),
        (["--model", "efficientnet_lite9"], "Did you mean .*efficientnet_lite0"),
    ],
)
def test_wrong_options_of_inspect_end_in_one_line_and_exit_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    code, printed, complaint = in_process(
        monkeypatch, capsys, "inspect", ASSETS / "chelsea.jpg", "--out", out, *arguments
    )
    assert (code, printed) == (2, "")
    assert complaint.startswith("camapp: ")
    assert complaint.count("\n") == 1
    assert re.search(message, complaint)
    assert not out.exists()


def test_inspect_is_loud_about_random_weights(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cat = ASSETS / "chelsea.jpg"
    code, printed, complaint = in_process(
        monkeypatch, capsys, "inspect", cat, "--model", "resnet50", "--random-weights"
    )
    assert code == 0
    assert "RANDOM WEIGHTS" in complaint
    assert "RANDOM WEIGHTS resnet50 on 1 picture" in printed


def test_compare_writes_a_contact_sheet_and_prints_how_far_the_maps_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--method", "gradcam", "--method", "cam", "--layer", "own", "--layer", "blocks.4.2.conv_pwl"]
    code, printed, _ = in_process(monkeypatch, capsys, "compare", ASSETS / "chelsea.jpg", *chosen, "--out", tmp_path)
    assert code == 0
    assert (tmp_path / "chelsea-contact-sheet.png").is_file()
    assert "Grad-CAM · bn2" in printed
    assert "the linear head takes 1280" in " ".join(printed.split())
    code, printed, _ = in_process(
        monkeypatch, capsys, "compare", ASSETS / "chelsea.jpg", *chosen, "--out", tmp_path, "--json", "-t", "tabby"
    )
    facts = json.loads(printed)
    assert facts["target"]["label"] == "tabby"
    assert facts["layers"] == [None, "blocks.4.2.conv_pwl"]
    assert facts["correlation"]["values"][3] == [None] * 4
    assert all(Path(path).is_file() for path in facts["files"])


def test_compare_of_one_map_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, complaint = in_process(monkeypatch, capsys, "compare", ASSETS / "chelsea.jpg", "--method", "gradcam")
    assert code == 2
    assert "nothing to compare it with" in complaint
