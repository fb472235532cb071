"""Probe: its head, its parts, and what it refuses to be made of."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from camapp.errors import ModelError, UsageError
from camapp.features.probe import KINDS, Probe, fit_probe
from camapp.features.probe import probe as probe_module
from tests.features.probe.clouds import clouds


@pytest.fixture(params=KINDS)
def probe(request: pytest.FixtureRequest) -> Probe:
    return fit_probe(*clouds(), kind=request.param)


def test_a_probe_read_back_from_safetensors_and_json_gives_the_same_scores(probe: Probe) -> None:
    content = safetensors.torch.save(probe.tensors())
    facts = json.loads(json.dumps(probe.facts(), allow_nan=False))
    read = Probe.from_parts(safetensors.torch.load(content), facts)
    others = clouds(seed=1)[0]
    np.testing.assert_array_equal(read.scores(others), probe.scores(others))
    np.testing.assert_equal(read.probabilities(others), probe.probabilities(others))
    assert (read.classes, read.kind, read.settings, read.notes) == (
        probe.classes,
        probe.kind,
        probe.settings,
        probe.notes,
    )
    assert read.predict(others) == probe.predict(others)


def test_the_head_is_a_module_of_its_own(probe: Probe) -> None:
    others = clouds(seed=1)[0]
    before = probe.scores(others)
    head = probe.head()
    np.testing.assert_array_equal(head(torch.from_numpy(others)).detach().numpy(), before)
    for tensor in head.state_dict().values():
        tensor.zero_()
    np.testing.assert_array_equal(probe.scores(others), before)


def test_the_heads_gradient_agrees_with_differences(probe: Probe) -> None:
    head = probe.head().double()
    picture = torch.from_numpy(clouds(seed=1)[0][:2]).double().requires_grad_()
    assert torch.autograd.gradcheck(head, (picture,), eps=1e-6, atol=1e-6)


def test_linear_heads_are_linear_layers_with_the_standardisation_inside() -> None:
    features, labels = clouds(3, 12, 6, apart=4)
    head = fit_probe(features, labels).head()
    assert isinstance(head, nn.Linear)
    told = head(torch.from_numpy(features)).argmax(1)
    assert told.tolist() == [int(label.removeprefix("class ")) for label in labels]


def test_probabilities_add_up_and_ridge_has_none(probe: Probe) -> None:
    given = probe.probabilities(clouds(seed=1)[0])
    if probe.kind == "ridge":
        assert given is None
    else:
        np.testing.assert_allclose(given.sum(1), 1, atol=1e-12)
        assert given.argmax(1).tolist() == [probe.classes.index(name) for name in probe.predict(clouds(seed=1)[0])]


def test_scores_do_not_depend_on_the_chunk(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    others = clouds(seed=1)[0]
    whole = probe.scores(others)
    monkeypatch.setattr(probe_module, "_ROWS", 5)
    np.testing.assert_allclose(probe.scores(others), whole, rtol=1e-5, atol=1e-6)


def test_features_of_another_size_are_refused(probe: Probe) -> None:
    with pytest.raises(UsageError, match="size 7; this probe was fitted on features of size 6"):
        probe.predict(np.zeros((2, 7)))
    with pytest.raises(UsageError, match="NaN or infinity"):
        probe.scores(np.full((1, 6), math.nan))


def _change(facts: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**facts, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, '"format": "camapp-probe"'),
        ({"version": 2}, "version 2, .* Update camapp"),
        ({"version": "1"}, "\"version\" is '1'"),
        ({"version": None}, '"version" is None'),
        ({"kind": "forest"}, "\"kind\" is 'forest'"),
        ({"kind": ["linear"]}, '"kind" is'),
        ({"classes": "abc"}, "no list of names"),
        ({"classes": ["a", 1, "c"]}, "no list of names"),
        ({"classes": ["a"]}, "two or more"),
        ({"classes": ["a", "a", "b"]}, "two or more different names in sorted order"),
        ({"classes": ["b", "a", "c"]}, "sorted order"),
        ({"classes": ["a", "b"]}, "2 classes"),
        ({"settings": None}, '"settings" are missing'),
        ({"notes": "text"}, '"notes"'),
    ],
)
def test_damaged_facts_are_refused(probe: Probe, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Probe.from_parts(probe.tensors(), _change(probe.facts(), **changes))


@pytest.mark.parametrize("missing", ["format", "version", "kind", "classes", "settings", "notes"])
def test_missing_facts_are_refused(probe: Probe, missing: str) -> None:
    facts = {name: value for name, value in probe.facts().items() if name != missing}
    with pytest.raises(ModelError, match="damaged"):
        Probe.from_parts(probe.tensors(), facts)


@pytest.mark.parametrize("facts", [None, [], "text", {}])
def test_what_are_no_facts_is_refused(probe: Probe, facts: Any) -> None:
    with pytest.raises(ModelError, match="damaged"):
        Probe.from_parts(probe.tensors(), facts)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_tensors_are_refused(kind: str) -> None:
    probe = fit_probe(*clouds(), kind=kind)
    tensors, facts = probe.tensors(), probe.facts()
    first, second = tensors
    broken: list[tuple[Any, str]] = [
        ({}, "the tensors"),
        (None, "the tensors"),
        ({first: tensors[first]}, "the tensors"),
        ({**tensors, "extra": tensors[first]}, "the tensors"),
        ({**tensors, first: tensors[first].double()}, "torch.float64, not torch.float32"),
        ({**tensors, first: tensors[first].tolist()}, "list, not torch.float32"),
        ({**tensors, first: tensors[first] * torch.nan}, "NaN"),
        ({**tensors, first: tensors[first][:, :0]}, r"\(\d+, 0\)"),
        ({**tensors, first: tensors[first][0]}, r"\(6,\)"),
        ({**tensors, second: tensors[second][:-1]}, r"should be"),
        ({**tensors, second: tensors[second][:, None]}, r"should be"),
    ]
    for parts, message in broken:
        with pytest.raises(ModelError, match=message):
            Probe.from_parts(parts, facts)


@pytest.mark.parametrize("k", [0, 37, 2.5, "3", None, True])
def test_a_damaged_k_is_refused(k: object) -> None:
    probe = fit_probe(*clouds(), kind="knn")
    with pytest.raises(ModelError, match='"k" is'):
        Probe.from_parts(probe.tensors(), _change(probe.facts(), settings={"k": k}))


def test_damaged_neighbours_are_refused() -> None:
    probe = fit_probe(*clouds(), kind="knn")
    tensors, facts = probe.tensors(), probe.facts()
    with pytest.raises(ModelError, match="unit length"):
        Probe.from_parts({**tensors, "features": tensors["features"] * 2}, facts)
    for targets in (tensors["targets"] + 1, tensors["targets"] - 1, tensors["targets"] * 0):
        with pytest.raises(ModelError, match="not the numbers 0 to 2 of its 3 classes"):
            Probe.from_parts({**tensors, "targets": targets}, facts)
