"""Model cards: one TOML file a backbone says all that camapp must know to run it right."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, ValidationInfo
from pydantic.functional_validators import AfterValidator, BeforeValidator, field_validator, model_validator

from camapp.errors import ModelError, closest, did_you_mean
from camapp.resources import resource_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from camapp.images.geometry import Preprocessing

CHECKPOINT_SUFFIXES = (".safetensors", ".pth", ".pt")


def list_cards(folder: str | Path | None = None) -> list[ModelCard]:
    """All model cards: first those whose weights come with a package, then camapp's others, then the user's own.

    A user's card takes the place of a shipped card of the same name.

    Args:
        folder: where the user's cards are; by default the folder in the environment variable ``CAMAPP_MODELS``, if any.

    Raises:
        ModelError: the folder does not exist, a card in it is wrong, or two of its cards have one name.
    """
    cards = {card.name: card for card in _read_folder(resource_folder("models"))}
    embedded = [name for name, card in cards.items() if card.weights.kind == "package"]
    order = [*embedded, *(name for name in cards if name not in embedded)]
    chosen = folder or os.environ.get("CAMAPP_MODELS")
    if chosen:
        own = {card.name: card for card in _read_folder(Path(chosen).expanduser())}
        order += [name for name in own if name not in cards]
        cards |= own
    return [cards[name] for name in order]


def find_card(model: str | Path, folder: str | Path | None = None) -> ModelCard:
    """The card of a name, or the card in a file.

    Args:
        model: a card's name, or the path of a ``.toml`` file.
        folder: as for ``list_cards``.

    Raises:
        ModelError: there is no such card, or it is wrong.
    """
    if isinstance(model, Path) or model.lower().endswith(".toml"):
        return read_card(model)
    cards = {card.name: card for card in list_cards(folder)}
    if model not in cards and Path(model).is_file():
        raise ModelError(
            f"{model} is a file, but no model: a model card ends in .toml, a trained classifier in .camapp. Weights "
            "are named by a card, and features (camapp features) hold no model."
        )
    if model not in cards:
        raise ModelError(f'No model "{model}".{did_you_mean(model, cards)} (camapp models lists them all)')
    return cards[model]


def read_card(path: str | Path) -> ModelCard:
    """Read one model card; paths in it count from the folder it lies in.

    Raises:
        ModelError: the file cannot be read, is not TOML, or is not a model card; names the file, the field, and what
            was expected there.
    """
    path = Path(path).expanduser()
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ModelError(f"Cannot read the model card {path}: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"The model card {path} is not valid TOML: {error}.") from error
    try:
        card = ModelCard.model_validate(fields, context={"folder": path.parent})
    except ValidationError as error:
        faults = "; ".join(_explain(fault) for fault in error.errors())
        raise ModelError(f"The model card {path} is wrong: {faults}.") from error
    card._path = path
    return card


def _from_card_folder(path: Path, info: ValidationInfo) -> Path:
    folder = (info.context or {}).get("folder", Path())
    return Path(os.path.abspath(folder / path.expanduser()))


def _pair(size: object) -> object:
    return (size, size) if isinstance(size, int) else size


class _Section(BaseModel):
    # strict: a quoted number or a number for a name is a slip that the card's author should hear of
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$"), AfterValidator(str.lower)]
CardPath = Annotated[Path, Field(strict=False), AfterValidator(_from_card_folder)]
Pixels = Annotated[int, Field(gt=0, le=8192)]
Share = Annotated[float, Field(ge=0, le=1)]
Spread = Annotated[float, Field(gt=0, le=1)]


class _Source(_Section):
    rename: str | None = Field(None, description="the name of a renaming of keys in camapp.backbones.renames")
    megabytes: float | None = Field(None, gt=0, description="the size of the weights file, in units of 2**20 bytes")


class PackageSource(_Source):
    """Weights inside an installed Python package."""

    kind: Literal["package"]
    package: str = Field(pattern=r"^[A-Za-z_]\w*$", description="the package's import name")
    file: str = Field(min_length=1, description="the weights file's path inside the package")
    sha256: Sha256 = Field(description="the file's SHA-256, 64 hex digits")


class TorchvisionSource(_Source):
    """Weights that torchvision publishes."""

    kind: Literal["torchvision"]
    name: str = Field(
        pattern=r"^\w+_Weights\.\w+$", description='a weights name such as "ResNet50_Weights.IMAGENET1K_V2"'
    )


class TimmSource(_Source):
    """Weights that timm publishes."""

    kind: Literal["timm"]
    tag: str = Field(min_length=1, description='a pretrained tag of timm such as "ra_in1k"')


class FileSource(_Source):
    """The user's own checkpoint."""

    kind: Literal["file"]
    file: CardPath = Field(description=f"a checkpoint ({', '.join(CHECKPOINT_SUFFIXES)}), from the card's folder")
    sha256: Sha256 | None = Field(None, description="the file's SHA-256, 64 hex digits")

    @field_validator("file")
    @classmethod
    def _is_checkpoint(cls, path: Path) -> Path:
        if path.suffix.lower() not in CHECKPOINT_SUFFIXES:
            raise ValueError("another ending")
        return path


class InputSection(_Section):
    """How the model wants its pictures."""

    size: Annotated[tuple[Pixels, Pixels], BeforeValidator(_pair), Field(strict=False)] = Field(
        description="the input's side in pixels, or [height, width]"
    )
    resize: Pixels | None = Field(
        None, description="the length in pixels of the short side before the crop; without it, the input's longer side"
    )
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = Field(
        description="one of nearest, bilinear, bicubic, lanczos"
    )
    mean: Annotated[tuple[Share, Share, Share], Field(strict=False)] = Field(
        description="three numbers (red, green, blue) on the 0-1 scale"
    )
    std: Annotated[tuple[Spread, Spread, Spread], Field(strict=False)] = Field(
        description="three numbers (red, green, blue) above 0, on the 0-1 scale"
    )
    fit: Literal["crop", "letterbox", "stretch"] = Field("crop", description="one of crop, letterbox, stretch")


class LabelsSection(_Section):
    """The classes and their names."""

    source: Literal["imagenet"] | None = Field(None, description='"imagenet", or give a file instead')
    file: CardPath | None = Field(
        None, description="a file of names, from the card's folder: one a line, or a JSON list or {index: name}"
    )
    count: int = Field(gt=0, description="the number of classes")

    @model_validator(mode="after")
    def _one_source(self) -> LabelsSection:
        if (self.source is None) == (self.file is None):
            raise ValueError('expected either source = "imagenet" or file = "...", and not both')
        if self.source == "imagenet" and self.count != 1000:
            raise ValueError(f"count = {self.count}: ImageNet has 1000 classes; give a file of names for others")
        return self


AnySource = Annotated[PackageSource | TorchvisionSource | TimmSource | FileSource, Field(discriminator="kind")]
_SOURCES = {"package": PackageSource, "torchvision": TorchvisionSource, "timm": TimmSource, "file": FileSource}


class ModelCard(_Section):
    """One backbone: its architecture, weights, input, labels and recommended target layer."""

    name: str = Field(pattern=r"^[A-Za-z0-9][\w.-]*$", description="a name of letters, digits, dots, - and _")
    title: str = Field(min_length=1, description="the name as people write it")
    summary: str = Field("", description="one line about the model")
    architecture: str = Field(
        pattern=r"^(timm|torchvision):[\w.-]+$",
        description='"timm:NAME" or "torchvision:NAME", such as "timm:resnet18"',
    )
    licence: str = Field("", description="the licence of the weights")
    layer: str | None = Field(None, min_length=1, description="a module's name: the recommended target layer")
    parameters: int | None = Field(None, gt=0, description="the number of parameters")
    weights: AnySource = Field(
        description='a section with kind = "package", "torchvision", "timm" or "file", and the fields of that kind'
    )
    input: InputSection = Field(description="a section with size, interpolation, mean and std")
    labels: LabelsSection = Field(description='a section with count and either source = "imagenet" or file')

    _path: Path | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _library_of_the_weights(self) -> ModelCard:
        kind, library = self.weights.kind, self.library
        if kind in ("torchvision", "timm") and kind != library:
            raise ValueError(f'weights.kind = "{kind}" does not go with architecture = "{self.architecture}"')
        return self

    @property
    def library(self) -> str:
        """``"timm"`` or ``"torchvision"``, which builds the architecture."""
        return self.architecture.partition(":")[0]

    @property
    def path(self) -> Path | None:
        """The file the card was read from, if any."""
        return self._path

    @property
    def preprocessing(self) -> Preprocessing:
        """The card's ``[input]`` as ``camapp.images.geometry`` takes it."""
        from camapp.images.geometry import Preprocessing  # imports torch, which listing cards must not

        given = self.input
        resize = given.resize or max(given.size)
        return Preprocessing(given.size, resize, given.interpolation, given.mean, given.std, given.fit)


def _read_folder(folder: Path) -> list[ModelCard]:
    if not folder.is_dir():
        raise ModelError(f"The folder of model cards {folder} does not exist (--models or CAMAPP_MODELS names it).")
    cards: dict[str, ModelCard] = {}
    for path in sorted(folder.glob("*.toml")):
        card = read_card(path)
        if card.name in cards:
            raise ModelError(f'Two model cards have the name "{card.name}": {cards[card.name].path} and {path}.')
        cards[card.name] = card
    return list(cards.values())


def _explain(fault: Any) -> str:
    """One finding of pydantic as: the field, the value, and what was expected."""
    location = [str(part) for part in fault["loc"]]
    section: Any = ModelCard
    if location[:1] == ["weights"] and len(location) > 1:
        section = _SOURCES[location.pop(1)]  # pydantic puts the kind between the section and the field
    elif len(location) > 1:
        section = {"input": InputSection, "labels": LabelsSection}[location[0]]
    where, field = ".".join(location), location[min(1, len(location) - 1)] if location else ""
    if fault["type"] == "extra_forbidden":
        alike = " or ".join(closest(field, section.model_fields, count=2))
        return f'"{where}" is not a field of a card' + (f" (did you mean {alike}?)" if alike else "")
    if fault["type"].startswith("union_tag"):
        given = f"= {fault['input']['kind']!r}" if "kind" in fault["input"] else "is missing"
        return f'weights.kind {given}, expected "package", "torchvision", "timm" or "file"'
    if fault["type"] == "value_error" and len(location) < 2:  # a rule about several fields says all itself
        return f"{where}: {fault['ctx']['error']}".lstrip(": ")
    info = section.model_fields[field]
    if fault["type"] == "missing":
        return f"{where} is missing, expected {info.description}"
    return f"{where} = {fault['input']!r}, expected {info.description}"
