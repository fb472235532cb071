"""Nearest neighbours: votes by cosine similarity."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from camapp.errors import UsageError
from camapp.features.probe import fit_probe, knn
from tests.features.probe.clouds import clouds


def test_votes_by_hand() -> None:
    """(1, 0) is similar to (2, 0), (3, 4), (0, 5) and (-1, 0) by 1, 0.6, 0 and -1."""
    training = np.array([[2.0, 0.0], [3.0, 4.0], [0.0, 5.0], [-1.0, 0.0]])
    labels = ["near", "slanted", "across", "opposite"]
    probe = fit_probe(training, labels, kind="knn", k=2)
    assert probe.classes == ("across", "near", "opposite", "slanted")
    np.testing.assert_allclose(probe.scores(np.array([[1.0, 0.0]])), [[0, 1 / 2, 0, 0.6 / 2]], atol=1e-6)
    np.testing.assert_allclose(probe.probabilities(np.array([[1.0, 0.0]])), [[0, 1 / 1.6, 0, 0.6 / 1.6]], atol=1e-6)
    opposite = fit_probe(training, labels, kind="knn", k=4).scores(np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(opposite, [[0, 1 / 4, 0, 0.6 / 4]], atol=1e-6)


def test_features_similar_to_nothing_are_equally_probable_as_any_class() -> None:
    probe = fit_probe(np.array([[1.0, 0.0], [1.0, 1.0]]), ["a", "b"], kind="knn", k=2)
    np.testing.assert_array_equal(probe.probabilities(np.array([[0.0, 0.0], [-1.0, -1.0]])), np.full((2, 2), 0.5))


@pytest.mark.parametrize("k", [1, 3, 10])
def test_probabilities_are_those_of_scikit_learn_where_no_similarity_is_negative(k: int) -> None:
    features, labels = clouds(4, 12, 8)
    features, others = np.abs(features), np.abs(clouds(4, 12, 8, seed=1)[0])
    theirs = KNeighborsClassifier(k, metric="cosine", weights=lambda distance: 1 - distance).fit(features, labels)
    ours = fit_probe(features, labels, kind="knn", k=k)
    np.testing.assert_allclose(ours.probabilities(others), theirs.predict_proba(others), atol=1e-5)
    assert ours.predict(others) == theirs.predict(others).tolist()


def test_length_does_not_matter_from_one_end_of_float32_to_the_other() -> None:
    features, labels = clouds(3, 6, 5)
    usual = fit_probe(features, labels, kind="knn", k=3).scores(features)
    for scale in (1e-30, 1e30):
        scaled = features.astype(np.float64) * scale
        np.testing.assert_allclose(fit_probe(scaled, labels, kind="knn", k=3).scores(scaled), usual, atol=1e-6)


def test_k_is_chosen_by_leaving_out_each_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knn, "_ROWS", 7)  # several chunks, the last of them short
    features, labels = clouds(3, 10, 4, apart=0.7)
    features = np.abs(features)
    settings = fit_probe(features, labels, kind="knn").settings
    assert [trial["k"] for trial in settings["tried"]] == [1, 3, 5, 10, 20]
    for trial in settings["tried"]:
        right = 0
        for row in range(len(labels)):
            rest = [other for other in range(len(labels)) if other != row]
            model = KNeighborsClassifier(trial["k"], metric="cosine", weights=lambda distance: 1 - distance)
            model.fit(features[rest], [labels[other] for other in rest])
            right += model.predict(features[row : row + 1])[0] == labels[row]
        assert trial["accuracy"] == right / len(labels)
    best = max(trial["accuracy"] for trial in settings["tried"])
    assert settings["k"] == next(trial["k"] for trial in settings["tried"] if trial["accuracy"] == best)


def test_the_gradient_is_that_of_the_votes_of_the_neighbours_found() -> None:
    features, labels = clouds(3, 6, 5)
    head = fit_probe(features, labels, kind="knn", k=4).head().double()
    picture = torch.from_numpy(clouds(3, 1, 5, seed=3)[0]).double()[:1].requires_grad_()
    for place in range(3):
        (gradient,) = torch.autograd.grad(head(picture)[0, place], picture)
        x = picture.detach()[0]
        similarities = head.features @ x / x.norm()
        wanted = torch.zeros(5, dtype=torch.float64)
        for row in similarities.argsort(descending=True)[:4]:
            if head.targets[row] == place and similarities[row] > 0:
                wanted += (head.features[row] - similarities[row] * x / x.norm()) / x.norm() / 4
        # The training features are of unit length in float32 only.
        torch.testing.assert_close(gradient[0], wanted, rtol=1e-6, atol=1e-6)
        assert abs(float(gradient[0] @ x)) < 1e-9


def test_zero_features_have_a_finite_gradient() -> None:
    features, labels = clouds(2)
    picture = torch.zeros(1, 6, requires_grad=True)
    fit_probe(features, labels, kind="knn", k=3).head()(picture).sum().backward()
    assert picture.grad.isfinite().all()


def test_zero_training_features_are_noted() -> None:
    features, labels = clouds(2)
    features[3] = 0
    assert any("1 of 24 training pictures" in note for note in fit_probe(features, labels, kind="knn").notes)


@pytest.mark.parametrize("value", [0, -1, 37, 2.0, True, "3"])
def test_a_k_that_cannot_be_meant_is_refused(value: object) -> None:
    features, labels = clouds(3, 12)
    with pytest.raises(UsageError, match=r"k = .*36 training pictures"):
        fit_probe(features, labels, kind="knn", k=value)
