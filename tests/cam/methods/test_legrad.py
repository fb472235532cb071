"""LeGrad: against torchcam, against the paper's formula written out in float64, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from torch import nn
from torch.nn import functional as F

from camapp.cam.methods.legrad import LeGrad
from camapp.errors import LayerError, UsageError
from tests.cam.methods.transformers import Hub, OwnEncoder, drawn, hub, timm_vit, torchvision_vit
from tests.hooks.test_as_found import assert_same, state
from tests.hooks.test_capture import hooks_on
from tests.networks import Plain


def logits_of(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    output = model(inputs)
    return output if isinstance(output, torch.Tensor) else output.logits


def slow_blocks(model: Hub, inputs: torch.Tensor, target: int, start: int = 0) -> torch.Tensor:
    """The paper's section 3 for ``Hub``: each block alone, its attention a leaf, its mean token read by the head."""
    tokens = model.patches(inputs).flatten(2).transpose(1, 2)
    tokens = torch.cat([model.cls.expand(len(inputs), -1, -1), tokens], 1) + model.position
    maps = []
    for number, block in enumerate(model.layer):
        tokens = tokens.detach()
        q, k, v = block.qkv(block.before(tokens)).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)  # type: ignore
        scores = torch.einsum("bhid,bhjd->bhij", q, k) / 8**0.5
        attention = (scores.exp() / scores.exp().sum(-1, keepdim=True)).detach().requires_grad_()
        mixed = torch.einsum("bhij,bhjd->bihd", attention, v).flatten(2)
        tokens = tokens + block.out(mixed)  # type: ignore
        tokens = tokens + block.mlp(block.after(tokens))  # type: ignore
        own = model.classifier(model.norm(tokens.mean(1)))[:, target].sum()
        (gradient,) = torch.autograd.grad(own, attention)
        positive = torch.where(gradient > 0, gradient, torch.zeros_like(gradient))
        if number >= start:
            maps.append(sum(positive[:, h, i] for h in range(2) for i in range(13)) / (2 * 13))
    return torch.stack(maps).mean(0)[:, 1:].view(-1, 4, 3).detach()  # type: ignore[arg-type]


@pytest.mark.parametrize("start", [0, 1, -1])
def test_maps_are_the_papers_written_out_block_by_block(start: int) -> None:
    model = hub().double()
    inputs = torch.randn(2, 3, 32, 24, dtype=torch.float64)
    wanted = slow_blocks(model, inputs, 2, start % 3)  # type: ignore[arg-type]
    result = LeGrad(model, start=start)(inputs, 2)
    assert wanted.abs().max() > 1e-4
    torch.testing.assert_close(result.raw.double(), wanted, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(result.logits.double(), model(inputs).logits.detach(), rtol=1e-6, atol=1e-7)
    assert result.reasons == [None, None]


@pytest.mark.parametrize("start", [0, 1])
def test_maps_of_a_torchvision_transformer_equal_torchcams(start: int) -> None:
    peers = pytest.importorskip("torchcam.methods", reason="torchcam wants Python 3.11 or newer")
    model, inputs = torchvision_vit(), torch.randn(2, 3, 32, 32)
    extractor = peers.LeGrad(model, list(model.encoder.layers)[start:])  # type: ignore
    (theirs,) = extractor([1, 3], model(inputs), normalized=False)
    extractor.remove_hooks()
    ours = LeGrad(model, start=start)(inputs, [1, 3])
    assert theirs.abs().max() > 1e-4
    torch.testing.assert_close(ours.raw, theirs, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("score", ["block", "final"])
def test_fused_attention_and_attention_written_out_give_the_same_map(score: Any) -> None:
    fused, plain = timm_vit(fused=True), timm_vit(fused=False)
    plain.load_state_dict(fused.state_dict())
    inputs = torch.randn(2, 3, 32, 32)
    one, other = (LeGrad(model, score=score)(inputs, 3) for model in (fused, plain))
    assert one.raw.abs().max() > 0
    torch.testing.assert_close(one.raw, other.raw, rtol=1e-4, atol=1e-6)


def test_batch_first_or_not_is_the_same_to_a_users_own_encoder() -> None:
    first, last = drawn(OwnEncoder(True)), drawn(OwnEncoder(False))
    last.load_state_dict(first.state_dict())
    inputs = torch.randn(2, 3, 32, 24)
    wanted = LeGrad(first, score="final")(inputs, 1).raw
    assert wanted.shape == (2, 4, 3)
    torch.testing.assert_close(LeGrad(last, score="final")(inputs, 1).raw, wanted, rtol=1e-4, atol=1e-6)


def test_the_final_score_asks_all_blocks_through_all_that_follows() -> None:
    """Against the whole graph of a model that writes its attention out, each matrix caught as its dropout's input."""
    model, inputs = timm_vit(fused=False), torch.randn(2, 3, 32, 32)
    kept: list[torch.Tensor] = []

    def keep(module: nn.Module, args: tuple[torch.Tensor]) -> None:
        args[0].retain_grad()
        kept.append(args[0])

    handles = [block.attn.attn_drop.register_forward_pre_hook(keep) for block in model.blocks]  # type: ignore
    model(inputs)[:, 4].sum().backward()
    for handle in handles:
        handle.remove()
    wanted = torch.stack([one.grad.clamp(min=0).mean((1, 2))[:, 1:] for one in kept]).mean(0)  # type: ignore
    for fused in (False, True):
        for block in model.blocks:  # type: ignore
            block.attn.fused_attn = fused
        found = LeGrad(model, score="final")(inputs, 4).raw
        torch.testing.assert_close(found, wanted.view(2, 4, 4), rtol=1e-3, atol=1e-6)


KINDS: list[Callable[[], nn.Module]] = [
    torchvision_vit,
    timm_vit,
    lambda: timm_vit(global_pool="avg"),
    lambda: timm_vit(reg_tokens=2),
    lambda: timm_vit(global_pool="map", class_token=False),
    lambda: timm_vit(img_size=(32, 48)),
    hub,
    lambda: drawn(OwnEncoder()),
]
SIZES = [(32, 32), (32, 32), (32, 32), (32, 32), (32, 32), (32, 48), (32, 24), (32, 24)]


@pytest.mark.parametrize("score", ["block", "final"])
@pytest.mark.parametrize(("kind", "size"), list(zip(KINDS, SIZES, strict=True)))
def test_scores_are_the_models_and_classes_and_rows_equal_one_by_one(
    kind: Callable[[], nn.Module], size: tuple[int, int], score: Any
) -> None:
    model, inputs = kind(), torch.randn(2, 3, *size)
    engine, classes = LeGrad(model, score=score), [[0, 3], [3, 1]]
    together = engine(inputs, classes)
    with torch.no_grad():
        assert (together.logits - logits_of(model, inputs)).abs().max() <= 1e-5
    assert together.raw.shape == (2, 2, size[0] // 8, size[1] // 8)
    for row in range(2):
        for k in range(2):
            alone = engine(inputs[row : row + 1], classes[row][k])
            assert alone.raw.std() > 0
            torch.testing.assert_close(together.raw[row, k], alone.raw[0], rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(together.scores[row, k], alone.scores[0], rtol=1e-4, atol=1e-5)
    assert together.reasons == [[None, None], [None, None]]


def test_a_pooling_query_is_told_of() -> None:
    model = timm_vit(global_pool="map", class_token=False)
    assert "are left out" in LeGrad(model)(torch.randn(1, 3, 32, 32), 0).notes[0]


class Bare(Hub):
    """Its residual sums lie outside of all modules, so that no module gives a block's tokens."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(x).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = Bare.Attention()

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Bare.Layer() for _ in range(3))

    def forward(self, x: torch.Tensor) -> Any:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls.expand(len(x), -1, -1), tokens], 1) + self.position
        for layer in self.layer:
            tokens = tokens + layer.attn(tokens)  # type: ignore[operator]
        return self.Output(self.classifier(self.norm(tokens)[:, 0]))


class Remembers(Hub):
    """What follows its blocks counts on as many rows as came in."""

    def forward(self, x: torch.Tensor) -> Any:
        output = super().forward(x)
        return self.Output(output.logits.view(len(x), 5))


@pytest.mark.parametrize(
    ("kind", "why"), [(Bare, "no module of its own gives the tokens"), (Remembers, "does not take their mean tokens")]
)
def test_models_whose_blocks_cannot_be_asked_are_pointed_to_the_final_score(kind: type[Hub], why: str) -> None:
    model, inputs = drawn(kind()), torch.randn(1, 3, 32, 24)
    with pytest.raises(LayerError, match=why) as caught:
        LeGrad(model)(inputs, 1)
    assert 'score="final"' in str(caught.value)
    assert LeGrad(model, score="final")(inputs, 1).raw.std() > 0
    assert hooks_on(model) == 0


class Pyramid(nn.Module):
    """Patches are merged on the way: attention of two sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.merge = nn.Conv2d(8, 8, 2, stride=2)
        self.one, self.two = (nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x)
        tokens = x.flatten(2).transpose(1, 2)
        x = self.one(tokens, tokens, tokens)[0].transpose(1, 2).view_as(x)
        tokens = self.merge(x).flatten(2).transpose(1, 2)
        return self.head(self.two(tokens, tokens, tokens)[0].mean(1))


def swin() -> nn.Module:
    return timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=32, window_size=4, embed_dim=8, depths=(1, 1), num_heads=(1, 2)
    )


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Plain, "No attention is seen in this Plain"),
        (swin, "within windows or groups"),
        (Pyramid, "the tokens change on the way"),
    ],
)
def test_networks_without_one_attention_over_the_picture_are_refused(kind: Any, message: str) -> None:
    with pytest.raises(LayerError, match=message) as caught:
        LeGrad(kind().eval())(torch.randn(1, 3, 32, 32), 0)
    assert "Use GradCAM" in str(caught.value)


def test_running_out_of_memory_is_not_taken_for_another_fault() -> None:
    class Full(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            if len(input) > 2:
                raise torch.OutOfMemoryError("no more")
            return super().forward(input)

    model = timm_vit()
    model.head = Full(16, 5)
    with pytest.raises(torch.OutOfMemoryError, match="no more"):
        LeGrad(model)(torch.randn(2, 3, 32, 32), 1)


def test_options_that_there_are_not_are_refused() -> None:
    model, inputs = torchvision_vit(), torch.randn(1, 3, 32, 32)
    with pytest.raises(UsageError, match="score='all'"):
        LeGrad(model, score="all")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"start=3: LeGrad sees 3 attention block\(s\) here, 0 to 2"):
        LeGrad(model, start=3)(inputs, 0)
    with pytest.raises(UsageError, match="takes no layer"):
        LeGrad(model, "encoder")
    with pytest.raises(UsageError, match="explains pictures"):
        LeGrad(nn.Conv1d(3, 4, 1))(torch.randn(1, 3, 8), 0)


@pytest.mark.parametrize("score", ["block", "final"])
def test_a_score_that_does_not_depend_on_the_attention_says_so(score: Any) -> None:
    model = torchvision_vit()
    nn.init.zeros_(model.heads.head.weight)  # type: ignore
    result = LeGrad(model, score=score)(torch.randn(1, 3, 32, 32), 0)
    assert not result.maps.any()
    assert str(result.reasons[0]).startswith("no gradient")


@pytest.mark.parametrize("score", ["block", "final"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gives_float32_maps_near_the_full_ones(score: Any, dtype: torch.dtype) -> None:
    model, inputs = torchvision_vit(), torch.randn(2, 3, 32, 32)
    wanted = LeGrad(model, score=score)(inputs, 1).raw
    result = LeGrad(model.to(dtype), score=score)(inputs, 1)
    assert result.raw.dtype == torch.float32
    assert (result.raw - wanted).abs().mean() <= 0.05 * wanted.abs().mean()


@pytest.mark.parametrize("score", ["block", "final"])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("target", [1, 99])
def test_the_model_is_left_as_found_also_on_errors_and_when_frozen(mode: Any, target: int, score: Any) -> None:
    model, inputs = torchvision_vit().train(), torch.randn(2, 3, 32, 32)
    wanted = LeGrad(model, score=score)(inputs, 1).raw
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model.heads.requires_grad_(True)  # type: ignore
    with mode():
        before = state(model)
        if target == 1:
            torch.testing.assert_close(LeGrad(model, score=score)(inputs, target).raw, wanted, rtol=1e-4, atol=1e-7)
        else:
            with pytest.raises(ValueError, match="out of range"):
                LeGrad(model, score=score)(inputs, target)
        assert_same(before, state(model))
    assert hooks_on(model) == 0
