"""The model catalogue: figures of the shipped models, look-up, and malformed files."""

from pathlib import Path
from typing import Any

import pytest
from refusals import Said, refused

from clustergym.common.errors import InputError
from clustergym.oracle.models.catalog import ARENA_FAMILIES, Catalog, load_catalog
from clustergym.oracle.models.model_spec import ModelClass

DENSE = """kind: dense
dtype: fp32
batches: [8]
size: {parameters: 1000000, forward_flops_per_sample: 1.0e+9, activation_bytes_per_sample: 1.0e+6, layers: 3}
"""
TRANSFORMER = """kind: transformer
dtype: fp16
vocabulary: 1000
sequence_length: 128
batches: [8]
sizes:
  tiny: {hidden: 64, layers: 2, heads: 4}
"""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def get(catalog: Catalog, family: str, size: str = "", batch: int = 1):
    return catalog.get(ModelClass(family, size, batch))


def billions(size: str) -> float:
    return float(size[:-1]) * {"M": 1e-3, "B": 1.0}[size[-1]]


@pytest.mark.parametrize("family", ["gpt3", "gshard_moe", "wide_resnet"])
def test_parameters_are_what_the_names_say(catalog: Catalog, family: str) -> None:
    assert len(catalog.sizes(family)) == 6
    for size in catalog.sizes(family):
        assert get(catalog, family, size).parameters / 1e9 == pytest.approx(billions(size), rel=0.1)


@pytest.mark.parametrize(
    ("size", "parameters", "flops"),
    [
        ("500M", 0.487e9, 0.164e12),
        ("1B", 0.995e9, 0.333e12),
        ("2B", 1.95e9, 0.652e12),
        ("4B", 3.98e9, 1.331e12),
        ("6.8B", 6.72e9, 2.203e12),
        ("13B", 12.6e9, 4.52e12),
    ],
)
def test_wide_resnets_have_alpas_shapes(catalog: Catalog, size: str, parameters: float, flops: float) -> None:
    spec = get(catalog, "wide_resnet", size)
    # The published counts leave out the classifier, 8 x 224 x 4 x 1,024 parameters at 500M.
    assert spec.parameters == pytest.approx(parameters, rel=0.02)
    assert spec.forward_flops_per_sample == pytest.approx(flops, rel=0.005)


def test_gpt3_by_hand(catalog: Catalog) -> None:
    spec = get(catalog, "gpt3", "1.3B")
    # 24 layers of 12 x 2048^2, embeddings of (51,200 + 1,024) x 2048.
    assert spec.parameters == 24 * 12 * 2048**2 + 52_224 * 2048
    # 2 FLOP a weight and token, scores and values 4 S^2 h a layer, logits 2 S h V.
    expected = 1024 * 2 * 24 * 12 * 2048**2 + 24 * 4 * 1024**2 * 2048 + 2 * 1024 * 2048 * 51_200
    assert spec.forward_flops_per_sample == expected


def test_mixture_of_experts_by_hand(catalog: Catalog) -> None:
    spec = get(catalog, "gshard_moe", "690M")
    # h = 768: 8 attentions of 4 h^2, 4 dense and 4 x 16 expert feed-forwards of 16 h^2, 4 gates of 16 h,
    # embedding 32,000 h.
    assert spec.parameters == (8 * 4 + 4 * 16 + 4 * 16 * 16) * 768**2 + 4 * 16 * 768 + 32_000 * 768
    assert spec.parameters == pytest.approx(685e6, rel=0.001)
    # Dispatch and combine cost 16,384 h FLOP a token in each of the four expert layers.
    assert spec.gate_flops == 4 * 16_384 * 768 * 1024


def test_measured_relaunch_seconds(catalog: Catalog) -> None:
    measured = {"resnet50": 4, "resnet18": 8, "yolov3": 4, "bert": 73, "deepspeech2": 1}
    assert {name: get(catalog, name).relaunch_s for name in measured} == measured
    assert get(catalog, "neumf").relaunch_s is None
    assert get(catalog, "gpt3", "760M").relaunch_s is None


def test_every_family_of_the_published_traces_is_there(catalog: Catalog) -> None:
    small = "resnet50 resnet18 yolov3 bert deepspeech2 neumf vgg16 inception3 gpt2 transformer"
    for family in [*small.split(), "recommendation", "lm", "a3c", "cyclegan"]:
        spec = get(catalog, family)
        assert (spec.architecture, spec.family, catalog.sizes(family)) == ("dense", family, ("",))
        assert min(spec.parameters, spec.forward_flops_per_sample, spec.activation_bytes_per_sample) > 0
    assert set(ARENA_FAMILIES.values()) <= set(catalog.families)


def test_sizes_ascend(catalog: Catalog) -> None:
    assert catalog.sizes("gpt3") == ("760M", "1.3B", "2.6B", "6.7B", "15B", "39B")


@refused("unknown-models")
def test_unknown_models_name_the_nearest(given: list[Any], said: Said, catalog: Catalog) -> None:
    with said.of_error():
        catalog.get(ModelClass(*given), file="trace.csv", line=7, field="model_family")


def test_any_positive_batch_is_allowed(catalog: Catalog) -> None:
    assert get(catalog, "gpt3", "1.3B", 3) is get(catalog, "gpt3", "1.3B", 100_000)


def test_extra_models_join_the_catalogue(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(DENSE)
    (tmp_path / "tiny_gpt.yaml").write_text(TRANSFORMER)
    catalog = load_catalog(extra=tmp_path)
    assert get(catalog, "mine").parameters == 1e6
    assert catalog.sizes("tiny_gpt") == ("tiny",)
    assert "gpt3" in catalog.families
    mine = load_catalog(extra=tmp_path / "mine.yaml").families
    assert mine == tuple(sorted({*load_catalog().families, "mine"}))
    assert catalog.fingerprint() != load_catalog().fingerprint()


def test_a_family_cannot_be_redefined(tmp_path: Path) -> None:
    (tmp_path / "gpt3.yaml").write_text(TRANSFORMER)
    with pytest.raises(InputError, match="gpt3 is in the catalogue already"):
        load_catalog(extra=tmp_path)


@pytest.mark.parametrize("make", [lambda folder: folder / "none", lambda folder: folder])
def test_a_folder_without_models(tmp_path: Path, make) -> None:
    with pytest.raises(InputError, match="folder of YAML files"):
        load_catalog(extra=make(tmp_path))


EXPERTS = TRANSFORMER.replace("transformer", "moe\nexpert_group_size: 64").replace(
    "heads: 4", "heads: 4, experts: 2"
)


@refused("models")
def test_malformed_files_end_in_one_line(tmp_path: Path, given: dict[str, list[str]], said: Said) -> None:
    ((kind, (old, new)),) = given.items()
    text = {"dense": DENSE, "transformer": TRANSFORMER, "experts": EXPERTS}[kind]
    assert old in text
    (tmp_path / "mine.yaml").write_text(text.replace(old, new))
    with said.of_error(tmp_path):
        get(load_catalog(extra=tmp_path), "mine")
