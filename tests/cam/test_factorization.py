"""Deep feature factorisation: planted concepts, scikit-learn's error, scores, and what is refused."""

from __future__ import annotations

import pytest
import torch
from sklearn.decomposition import NMF
from torch import nn

from camapp.cam.factorization import factorize
from camapp.errors import LayerError, UsageError
from camapp.loading import load_model
from tests.cam.methods.layer_methods import Rectified, Seen, Tokens


class Listed(nn.Module):
    """A layer of 12 channels, averaged into a head: 4 for each of the picture's 3, of which the last is shared by all.

    Each part has channels of its own, without which its concept would not be the only one possible.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mixed = nn.Conv2d(3, 12, 1, bias=False)
        self.head = nn.Linear(12, 4)
        with torch.no_grad():
            own = torch.eye(3).repeat_interleave(4, 0)
            own[11] = 1.0
            self.mixed.weight.copy_((own * torch.rand(12, 3))[:, :, None, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.mixed(x).mean((2, 3)))


def planted(side: int = 8) -> torch.Tensor:
    """Two pictures of three parts that do not overlap: a corner, a stripe, a dot of its own only in the second."""
    parts = torch.zeros(2, 3, side, side)
    parts[0, 0, :3, :3] = parts[1, 0, 5:, 5:] = 1.0
    parts[0, 1, :, 6] = parts[1, 1, 2] = 0.5
    parts[1, 2, 0, 0] = 2.0
    return parts


def test_planted_parts_are_found_with_the_same_number_in_every_picture() -> None:
    model, inputs = Listed().eval(), planted()
    found = factorize(model, inputs, "mixed", concepts=3)
    assert found.error < 1e-3
    # Each concept's map is one part over its maximum, and its vector the part's channels at full strength.
    for part in range(3):
        wanted = inputs[:, part] / inputs[:, part].max()
        distances = (found.raw - wanted[:, None]).abs().amax((0, 2, 3))
        number = int(distances.argmin())
        assert distances[number] < 0.01
        vector = model.mixed.weight[:, part, 0, 0].detach() * inputs[:, part].max()
        torch.testing.assert_close(found.concepts[number], vector, rtol=0.02, atol=0.02)
        assert found.scores is not None
        everywhere = torch.zeros(1, 3, 8, 8)
        everywhere[0, part] = inputs[:, part].max()
        torch.testing.assert_close(found.scores[number], model(everywhere)[0].detach(), rtol=0.05, atol=0.05)
    torch.testing.assert_close(found.maps, found.raw)  # the layer has the picture's size


def test_it_explains_as_much_as_scikit_learns_factorisation() -> None:
    model, inputs = Rectified().eval(), torch.randn(3, 3, 40, 24)
    found = factorize(model, inputs, "early", concepts=4)
    activation = model.early(model.stem(inputs)).detach()
    places = activation.permute(0, 2, 3, 1).reshape(-1, 6)
    rebuilt = torch.einsum("bkhw,kc->bchw", found.raw, found.concepts)
    error = float((activation - rebuilt).norm() / activation.norm())
    assert found.error == pytest.approx(error, rel=1e-3)
    theirs = NMF(n_components=4, init="nndsvda", max_iter=500, random_state=0, tol=1e-6).fit(places.numpy())
    assert found.error <= 1.005 * theirs.reconstruction_err_ / float(places.norm())
    assert found.raw.min() >= 0
    assert found.concepts.min() >= 0


def test_more_concepts_leave_less_unexplained_and_the_strongest_comes_first() -> None:
    model, inputs = Rectified().eval(), torch.randn(2, 3, 40, 24)
    results = [factorize(model, inputs, "late", concepts=count) for count in (1, 2, 4, 8)]
    errors = [found.error for found in results]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > errors[-1] + 0.1
    strengths = results[2].raw.square().sum((0, 2, 3)).sqrt() * results[2].concepts.norm(dim=1)
    assert strengths.tolist() == sorted(strengths.tolist(), reverse=True)


def test_the_same_seed_gives_the_same_concepts_and_the_global_generator_is_left_alone() -> None:
    model, inputs = Rectified().train(), torch.randn(2, 3, 16, 16)
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    first = factorize(model, inputs, "late", concepts=3)
    assert torch.equal(torch.rand(2), wanted)
    assert torch.equal(factorize(model, inputs, "late", concepts=3).maps, first.maps)
    assert model.training
    assert not first.maps.requires_grad


def test_tokens_give_the_concepts_of_the_same_map() -> None:
    model, twin, inputs = Tokens().eval(), Rectified().eval(), torch.randn(1, 3, 16, 32)
    twin.load_state_dict(model.state_dict())
    found, wanted = (factorize(net, inputs, "late", concepts=2) for net in (model, twin))
    torch.testing.assert_close(found.raw, wanted.raw, rtol=1e-3, atol=1e-4)
    assert found.maps.shape == (1, 2, 16, 32)


def test_a_layer_that_is_not_averaged_into_a_head_has_no_scores() -> None:
    model, inputs = Rectified().eval(), torch.randn(1, 3, 16, 16)
    assert factorize(model, inputs, "early", concepts=2).scores is None
    assert factorize(model, inputs, "late", concepts=2).scores is not None


def test_negative_activations_count_as_zero_and_a_note_says_how_much_they_held() -> None:
    inputs = torch.tensor([3.0, -4.0, 0.0])[:, None, None] * torch.rand(1, 1, 6, 6)
    found = factorize(Seen(), inputs, "seen", concepts=1)
    assert found.notes == ('64% of the energy of "seen" is negative activation, which counts as zero here',)
    torch.testing.assert_close(found.raw[0, 0] * found.concepts[0, 0], inputs[0, 0], rtol=1e-3, atol=1e-3)
    assert factorize(Seen(), inputs.abs(), "seen", concepts=1).notes == ()


def test_a_layer_of_zeros_has_empty_concepts() -> None:
    found = factorize(Seen(), torch.zeros(1, 3, 6, 6), "seen", concepts=2)
    assert not found.maps.any()
    assert not found.concepts.any()
    assert found.error == 0


@pytest.mark.parametrize("concepts", [0, -1, 9, 1.5, True])
def test_numbers_of_concepts_that_there_cannot_be_are_refused(concepts: object) -> None:
    with pytest.raises(UsageError, match="16 places of 8 channels can be made of 1 to 8"):
        factorize(Rectified(), torch.randn(1, 3, 16, 16), "late", concepts=concepts)


def test_broken_activations_are_refused() -> None:
    with pytest.raises(LayerError, match='"late" gives NaN or infinity'):
        factorize(Rectified(), torch.full((1, 3, 16, 16), float("nan")), "late", concepts=2)


def test_the_embedded_model_needs_no_layer() -> None:
    model, inputs = load_model("efficientnet_lite0"), torch.randn(2, 3, 224, 224)
    found = factorize(model, inputs, concepts=4)
    assert found.layer == "bn2"
    assert found.raw.shape == (2, 4, 7, 7)
    assert found.scores is not None
    logits = model.module(inputs).detach()
    # The head is linear: the concepts' scores, mixed as the pictures mix them, are near the pictures' own.
    mixed = found.raw.mean((2, 3)) @ (found.scores - model.module.classifier.bias.detach())
    mixed = mixed + model.module.classifier.bias.detach()
    assert (mixed - logits).norm() <= found.error * logits.norm() * 2
