"""A model from a name, a config.json, a directory or a TOML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.costmodel.parameters import parameter_count
from meshwright.errors import EnvironmentLackError, InputError
from meshwright.ingest.model_file import read_model

from .upstream import GPT2, LLAMA_2_7B

TOML = """
family = "mine"
[transformer]
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 4
vocab_size = 100
max_position_embeddings = 32
norm = "rmsnorm"
position = "rotary"
tie_word_embeddings = false
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model directory ``mine``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(LLAMA_2_7B))
    return tmp_path


def test_names_paths_and_directories(folder: Path) -> None:
    assert read_model("gpt2").name == "GPT-2"
    assert read_model(" meta-llama/Llama-2-7b-hf ").name == "Llama-2-7B"
    for text in ("mine", "./mine", "mine/config.json", str(folder / "mine")):
        model = read_model(text)
        assert model.name == "mine"
        assert parameter_count(model) == 6_738_415_616
    renamed = folder / "llama.config"
    renamed.write_text(json.dumps(GPT2))
    assert parameter_count(read_model("./llama.config")) == 124_439_808


def test_a_path_that_exists_wins_over_a_hub_name_but_not_over_a_bare_one(folder: Path) -> None:
    for name in ("bigscience/bloom", "gpt2"):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(json.dumps(LLAMA_2_7B))
    assert read_model("bigscience/bloom").family == "llama"
    assert read_model("gpt2").family == "gpt2"
    assert read_model("./gpt2").family == "llama"


def test_a_toml_description(folder: Path) -> None:
    (folder / "small.toml").write_text(TOML)
    model = read_model("small.toml")
    # Embedding and head 2 x 6,400; a layer 4 x 64^2 + 2 x 64 x 256 + 2 x 64; the final norm 64.
    assert parameter_count(model) == 2 * 6400 + 2 * (4 * 64**2 + 2 * 64 * 256 + 2 * 64) + 64
    assert model.name == "small"
    assert model.facts["hidden_size"].source == "small.toml"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("lama-2-7b", "MW-E201", "llama-2-7b"),
        ("", "MW-E201", "neither"),
        ("no/such/model", "MW-E201", "no/such/model"),
        ("nowhere.json", "MW-E220", "nowhere.json"),
        ("mine/confg.json", "MW-E220", "config.json?"),
        ("./nowhere", "MW-E220", "./nowhere"),
        ("empty-dir/", "MW-E221", "config.json"),
        ("empty.json", "MW-E222", "empty"),
        ("notes.txt", "MW-E228", "notes.txt"),
        ("weights.bin", "MW-E228", "weights.bin"),
        ("weights.json", "MW-E227", "weights.json"),
        ("broken.toml", "MW-E203", "line 2"),
        ("x\0y", "MW-E201", "neither"),
        ("m" * 5000, "MW-E201", "neither"),
    ],
)
def test_what_goes_wrong_is_one_input_error(folder: Path, text: str, code: str, said: str) -> None:
    (folder / "empty-dir").mkdir()
    (folder / "empty.json").write_text("")
    (folder / "notes.txt").write_text("to do")
    (folder / "weights.bin").write_bytes(b"\x00\x01")
    (folder / "weights.json").write_bytes(b"\x00\x01")
    (folder / "broken.toml").write_text("\nhidden_size = ]\n")
    with pytest.raises(InputError) as caught:
        read_model(text)
    assert caught.value.code == code
    assert caught.value.exit_code == 2
    assert said.casefold() in str(caught.value).casefold()


def test_a_link_that_leads_nowhere_is_said_to(tmp_path: Path) -> None:
    link = tmp_path / "config.json"
    link.symlink_to(tmp_path / "gone.json")
    with pytest.raises(InputError, match="link leads to") as caught:
        read_model(str(link))
    assert caught.value.nearest is None


@pytest.mark.parametrize("name", ["config.json", "model.toml"])
def test_a_file_that_may_not_be_read_is_a_lack_of_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    path.write_text(TOML)

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(EnvironmentLackError, match="chmod") as caught:
        read_model(str(path))
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 10**15},
        {"num_attention_heads": 10**13},
        {"num_hidden_layers": 10**9},
        {"vocab_size": 10**18},
        {"hidden_size": 1 << 20, "num_attention_heads": 1 << 20, "num_key_value_heads": 1 << 20, "head_dim": 128},
    ],
)
def test_absurd_sizes_are_refused_with_the_most(tmp_path: Path, change: dict[str, int]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA_2_7B, **change}))
    with pytest.raises(InputError, match="The most is") as caught:
        read_model(str(path))
    assert caught.value.code == "MW-E208"


def test_written_out_blocks_have_limits_too(tmp_path: Path) -> None:
    path = tmp_path / "blocks.toml"
    path.write_text(
        "hidden_size = 64\nvocab_size = 100\nmax_position_embeddings = 32\ntie_word_embeddings = false\n"
        '[[layers]]\nrepeat = 1000000000\nblocks = [{ kind = "norm", norm = "rmsnorm" }]\n'
    )
    with pytest.raises(InputError, match="The most is 10000") as caught:
        read_model(str(path))
    assert str(caught.value.where).endswith("layers.repeat")
