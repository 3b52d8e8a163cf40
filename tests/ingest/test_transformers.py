"""Parameter counts against the ``transformers`` library, which builds each model without memory (device ``meta``).

``configs/`` holds what decides the size in the published ``config.json`` files; each catalog file names its source.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshwright import catalog
from meshwright.costmodel.parameters import parameter_count
from meshwright.ingest import hf_config
from meshwright.ingest.hf_families import FAMILIES

from .upstream import MODELS

CONFIGS = sorted((Path(__file__).parent / "configs").glob("*.json"))
#: Our tests turn warnings into errors; the library has its own.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
#: ``model_type`` that the library does not know -> the one whose classes these files name.
KNOWN_AS = {"kimi_k2": "deepseek_v3"}
#: What the defaults of a class need besides to make a model at all, or one whose parts have one width.
COMPLETED: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "glm4_moe": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "gemma3": {"vision_config": {"model_type": "siglip_vision_model", "vision_use_head": False}},
    "qwen2_5_vl": {"vision_config": {"out_hidden_size": 8192}},
    "llama4": {"vision_config": {"hidden_size": 1408, "vision_output_dim": 4096}},
}
WITH_IMAGES = {"llava", "gemma3", "qwen2_5_vl", "llama4"}

Count = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def theirs() -> Count:
    """The parameters that the library builds from a config, and the config as it would write it."""
    if os.environ.get("CI") != "true":
        pytest.importorskip("transformers")
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    def count(config: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        model_type = KNOWN_AS.get(config["model_type"], config["model_type"])
        values = {key: value for key, value in config.items() if key not in ("model_type", "rope_scaling")}
        built = CONFIG_MAPPING[model_type].from_dict(values)
        tasks = {"bert": "AutoModelForMaskedLM", "vit": "AutoModelForImageClassification"}
        tasks |= dict.fromkeys(WITH_IMAGES, "AutoModelForImageTextToText")
        with torch.device("meta"):
            model = getattr(transformers, tasks.get(model_type, "AutoModelForCausalLM")).from_config(built)
        model.tie_weights()
        return sum(each.numel() for each in model.parameters()), built.to_dict()

    return count


def _ours(folder: Path, config: dict[str, Any]) -> int:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return parameter_count(hf_config.read(path))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_published_configs_count_as_the_library_builds_them(path: Path, theirs: Count, tmp_path: Path) -> None:
    config = json.loads(path.read_text())
    count, written = theirs(config)
    read = hf_config.read(path)
    assert parameter_count(read) == count
    # What the library writes of it has other keys and every default, and means the same model.
    assert _ours(tmp_path, {**written, "model_type": config["model_type"]}) == count
    bundled = catalog.model(path.stem)
    for name in ("hidden_size", "vocab_size", "tie_word_embeddings", "dropout", "prologue", "layers", "epilogue"):
        assert getattr(bundled, name) == getattr(read, name), name
    assert bundled.max_position_embeddings == read.max_position_embeddings


@pytest.mark.parametrize("name", MODELS)
def test_dense_families_count_as_the_library_builds_them(name: str, theirs: Count, tmp_path: Path) -> None:
    config, published = MODELS[name]
    assert theirs(config)[0] == published == _ours(tmp_path, config)


@pytest.mark.parametrize("model_type", [name for name in FAMILIES if name not in {"chatglm", *KNOWN_AS}])
def test_the_classes_own_defaults_are_ours(model_type: str, theirs: Count, tmp_path: Path) -> None:
    """The library's config of each family as it writes it when nothing was said."""
    count, written = theirs({"model_type": model_type, **COMPLETED.get(model_type, {})})
    assert _ours(tmp_path, {**written, "model_type": model_type}) == count


def test_mixtral_has_the_published_count() -> None:
    assert parameter_count(catalog.model("Mixtral-8x7B")) == 46_702_792_704


def test_nemotron_h_has_the_published_count() -> None:
    assert parameter_count(catalog.model("Nemotron-H-8B")) == 8_100_852_736
