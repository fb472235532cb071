"""A process killed at any step of a write leaves the old features whole, or the new ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from camapp.features.formats import FORMATS

# Formats differ in how a file is written; one of a single file and one of a folder are enough where time is short.
USUALLY = ("parquet", "npy")
EACH = [form if form in USUALLY else pytest.param(form, marks=pytest.mark.slow) for form in FORMATS]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")

# Every step that Python takes in the folder raises an audit event: the child kills itself at the n-th, for each n until
# it comes through. The parent looks at what is there after each.
AT_EACH_STEP = """
import itertools, os, signal, sys
from pathlib import Path
from camapp.features.formats import load_features
from tests.features.formats.tables import assert_equal, table_of

form, path = sys.argv[1], Path(sys.argv[2])
folder = str(path.parent)
old = table_of({"x": (3,)}, ("old.jpg",), labels=("cat",))
new = table_of({"x": (3,), "y": ()}, ("new.jpg", "b.jpg"), labels=("cat", "dog"))
file = old.save(path, form)[0]
there = path if form == "npy" else file

def child(step):
    seen = itertools.count(1)
    def kill(event, args):
        here = event.startswith(("open", "os.", "shutil.")) and any(folder in str(one) for one in args)
        if here and next(seen) == step:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(kill)
    new.save(path, form, overwrite=True)
    os._exit(0)

ends = []
for step in itertools.count(1):
    old.save(path, form, overwrite=True)
    process = os.fork()
    if not process:
        child(step)
    status = os.waitpid(process, 0)[1]
    aside = list(path.parent.glob(".*.old"))
    found = load_features(there if there.exists() else aside[0])
    want = new if found.names == new.names else old
    assert_equal(found, want)
    ends.append(("new" if want is new else "old") if there.exists() else "aside")
    for rest in aside:
        rest.rename(path) if not path.exists() else None
    if status == 0:
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
print(" ".join(ends))
"""

# The kernel kills the child with half of the bytes on the disk.
HALF_WAY = """
import os, resource, signal, sys
import numpy as np
from pathlib import Path
from camapp.features.formats import load_features
from camapp.features.table import FeatureTable
from tests.features.formats.tables import assert_equal, table_of

form, path = sys.argv[1], Path(sys.argv[2])
old = table_of({"x": (3,)}, ("old.jpg",), labels=("cat",))
values = np.random.default_rng(0).standard_normal((100, 5000), np.float32)
new = FeatureTable(tuple(map(str, range(100))), {"x": values}, table_of({"x": (5000,)}, ()).info)
there = old.save(path, form)[0] if form != "npy" else old.save(path, form)[0].parent
process = os.fork()
if not process:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (values.nbytes // 2, values.nbytes // 2))
    new.save(path, form, overwrite=True)
    os._exit(0)
status = os.waitpid(process, 0)[1]
assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXFSZ, status
sizes = {file.stat().st_size for file in path.parent.rglob("*") if file.is_file()}
# safetensors reserves the room for all bytes at once.
assert (0 if form == "safetensors" else values.nbytes // 2) in sizes
assert_equal(load_features(there), old)
"""

# A stream of tables, killed between two of them.
IN_A_STREAM = """
import os, signal, sys
from pathlib import Path
from camapp.features.formats import write_stream
from tests.features.formats.tables import table_of

def stream():
    for number in range(3):
        yield table_of({"x": (5000,)}, (f"{number}.jpg",))
    os.kill(os.getpid(), signal.SIGKILL)

write_stream(stream(), Path(sys.argv[2]))
"""


def run(script: str, form: str, path: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", script, form, str(path)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("form", EACH)
def test_killed_at_any_step_the_old_or_the_new_features_are_whole(form: str, tmp_path: Path) -> None:
    done = run(AT_EACH_STEP, form, tmp_path / "features")
    assert done.returncode == 0, done.stderr
    ends = done.stdout.split()
    # Old first and new at last; in between a folder is put aside for one step, a file never.
    assert ends == sorted(ends, key=["old", "aside", "new"].index)
    assert ends[0] == "old"
    assert ends[-1] == "new"
    assert ends.count("aside") == (1 if form == "npy" else 0)


@pytest.mark.parametrize("form", EACH)
def test_killed_half_way_the_old_features_are_whole(form: str, tmp_path: Path) -> None:
    done = run(HALF_WAY, form, tmp_path / "features")
    assert done.returncode == 0, done.stderr


def test_a_killed_stream_leaves_no_file_of_its_name(tmp_path: Path) -> None:
    done = run(IN_A_STREAM, "parquet", tmp_path / "x.parquet")
    assert done.returncode == -9
    assert not (tmp_path / "x.parquet").exists()
    assert len(list(tmp_path.glob(".x.parquet.*.part"))) == 1
