"""The loader on the bundled files and on files of a user's own."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from meshwright import catalog
from meshwright.catalog import loader
from meshwright.costmodel.parameters import parameter_count
from meshwright.errors import InputError
from meshwright.specs.hardware import Gpu

EVERY = [(kind, name) for kind in catalog.kinds() for name in catalog.names(kind)]
#: Fields that are names rather than values with a source.
NAMING = {"name", "aliases", "facts"}

#: Our name -> the row of ../shared/data/hardware.csv that speaks of the same part.
ROWS = {
    "V100-16GB-SXM2": "V100-16GB SXM2",
    "V100-32GB-SXM2": "V100-32GB SXM2",
    "A100-40GB-SXM": "A100-40GB SXM4",
    "A100-80GB-SXM": "A100-80GB SXM4",
    "A100-80GB-PCIe": "A100-80GB PCIe",
    "H100-80GB-SXM": "H100 SXM5 80GB",
    "H100-80GB-PCIe": "H100 PCIe 80GB",
    "H800-80GB-SXM": "H800 SXM",
    "H200-141GB-SXM": "H200 SXM",
    "B200-180GB-SXM": "B200 SXM",
    "RTX-4090": "RTX 4090",
}
#: Dense FLOPs a cycle of one SM's tensor cores, fp16 in and fp32 out (NVIDIA's architecture white papers).
FLOPS_A_CYCLE = {"volta": 1024, "ampere": 2048, "ada": 512, "hopper": 4096, "blackwell": 8192}

#: Published parameter counts, to the last digit (model cards, or the sum of the released tensors).
PARAMETERS = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "opt-125m": 125_239_296,
    "bloom-560m": 559_214_592,
    "bloom-7b1": 7_069_016_064,
    "bloom": 176_247_271_424,
    "llama-7b": 6_738_415_616,
    "llama-65b": 65_285_660_672,
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
}


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_value_has_a_source_and_a_label(kind: str, name: str) -> None:
    entry = catalog.entry(kind, name)
    assert entry.name == name
    if kind == "model":
        assert {"hidden_size", "vocab_size", "max_position_embeddings", "tie_word_embeddings"} <= set(entry.facts)
    else:
        wanted = {field for field in type(entry).model_fields if getattr(entry, field) is not None} - NAMING
        assert wanted <= {field.split(".")[0] for field in entry.facts}
    for field, fact in entry.facts.items():
        assert len(fact.source) > 10, (field, fact.source)
        assert fact.text


@pytest.mark.parametrize("kind", catalog.kinds())
def test_no_two_entries_share_a_name(kind: str) -> None:
    owner: dict[str, str] = {}
    for written in loader.written_entries(kind):
        names = (written.path.stem, written.name, *written.names("aliases"), *written.names("short_names"))
        for name in names:
            assert owner.setdefault(loader.fold(name), written.name) == written.name, name
            found = loader.find(kind, name)
            assert found is not None
            assert found.name == written.name


@pytest.mark.parametrize(
    ("kind", "said", "name"),
    [
        ("gpu", "A100", "A100-80GB-SXM"),
        ("gpu", "a100-80gb-sxm", "A100-80GB-SXM"),
        ("gpu", "A100 80GB", "A100-80GB-SXM"),
        ("gpu", "a100_pcie_80gb", "A100-80GB-PCIe"),
        ("gpu", "h100", "H100-80GB-SXM"),
        ("gpu", "RTX4090", "RTX-4090"),
        ("node", "DGX H100", "DGX-H100"),
        ("node", "Standard_ND96isr_H100_v5", "ND96isr_H100_v5"),
        ("nic", "HDR InfiniBand", "IB-HDR"),
        ("model", "llama-65b", "LLaMA-1-65B"),
        ("model", "META-LLAMA/llama-2-7B-hf", "Llama-2-7B"),
        ("model", "bigscience/bloom", "BLOOM-176B"),
        ("model", "gpt2_xl", "GPT-2-XL"),
        ("model", "opt-1.3b", "OPT-1.3B"),
        ("model", "opt-13b", "OPT-13B"),
        ("model", "gpt-3 1.3b", "GPT-3-1.3B"),
    ],
)
def test_names_people_write(kind: str, said: str, name: str) -> None:
    assert catalog.entry(kind, said).name == name


def test_names_of_the_published_runs_are_known(shared: Path) -> None:
    with (shared / "data" / "published_runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    ours = ("V100", "A100", "H100", "H200", "B200", "RTX4090")
    gpus = {row["gpu"] for row in rows if row["gpu"].startswith(ours)} - {"H100-96GB-HBM2e-500W", "H200-NVL"}
    assert len(gpus) >= 9
    for name in gpus:
        catalog.gpu(name)
    for name in ("Llama3-70B", "Llama3.1-405B", "Llama3-8B", "GPT3-175B"):
        catalog.model(name)


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_parameter_counts_are_the_published_ones(name: str, count: int) -> None:
    assert parameter_count(catalog.model(name)) == count


@pytest.mark.parametrize(
    "name", [name for name in catalog.names("model") if name.startswith(("Megatron-", "GPT-3-", "OPT-"))]
)
def test_a_size_in_a_name_is_the_size(name: str) -> None:
    said = name.rsplit("-", 1)[1]
    size = float(said[:-1]) * {"B": 1e9, "b": 1e9, "m": 1e6, "M": 1e6}[said[-1]]
    # Names round; Megatron's to a tenth of a billion (arXiv 2104.04473, table 1), the others more freely.
    slack = 0.051e9 if name.startswith("Megatron") else 0.03 * size
    assert abs(parameter_count(catalog.model(name)) - size) <= slack


@pytest.mark.parametrize(("name", "row_name"), ROWS.items())
def test_gpus_agree_with_the_collected_data_sheets(shared: Path, name: str, row_name: str) -> None:
    with (shared / "data" / "hardware.csv").open(newline="") as file:
        row = {row["name"]: row for row in csv.DictReader(file)}[row_name]
    gpu = catalog.gpu(name)
    assert gpu.architecture == row["arch"].lower()
    assert gpu.year == int(row["year"])
    assert gpu.memory_bytes / 2**30 == float(row["mem_GB"])
    assert gpu.memory_bytes_per_s == pytest.approx(float(row["mem_GBps"]) * 1e9)
    assert gpu.l2_bytes / 2**20 == float(row["l2_MB"])
    assert gpu.sm_count == int(row["sm_or_cu"])
    assert gpu.boost_clock_hz == pytest.approx(float(row["boost_MHz"]) * 1e6)
    assert gpu.scale_up_bytes_per_s == pytest.approx(float(row["scaleup_GBps_unidir"]) * 1e9)
    assert gpu.tdp_w == float(row["tdp_W"])
    half = gpu.peak_flops_per_s.get("bf16", gpu.peak_flops_per_s["fp16"])
    assert half == pytest.approx(float(row["bf16_dense"]) * 1e12, rel=2e-3)
    for precision, column in (("fp32", "fp32"), ("tf32", "tf32"), ("fp8", "fp8_dense")):
        assert (precision in gpu.peak_flops_per_s) == bool(row[column])
        if row[column]:
            assert gpu.peak_flops_per_s[precision] == pytest.approx(float(row[column]) * 1e12, rel=2e-3)


@pytest.mark.parametrize("name", ROWS)
def test_peaks_are_dense(name: str) -> None:
    gpu = catalog.gpu(name)
    possible = gpu.sm_count * gpu.boost_clock_hz * FLOPS_A_CYCLE[gpu.architecture]
    # A 2:4-sparse figure would be twice what the tensor cores can do.
    assert 0.9 * possible < gpu.peak_flops_per_s["fp16"] < 1.002 * possible


@pytest.mark.parametrize("name", ROWS)
def test_pcie_rate_follows_from_its_generation(shared: Path, name: str) -> None:
    with (shared / "data" / "hardware.csv").open(newline="") as file:
        pcie = {row["name"]: row["pcie"] for row in csv.DictReader(file)}[ROWS[name]]
    generation, lanes = map(int, pcie.split("x"))
    transfers_per_s = {3: 8e9, 4: 16e9, 5: 32e9}[generation]
    wanted = transfers_per_s * lanes * 128 / 130 / 8
    assert catalog.gpu(name).pcie_bytes_per_s == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("name", catalog.names("node"))
def test_nodes_name_parts_that_exist(name: str) -> None:
    node = catalog.node(name)
    gpu = catalog.gpu(node.gpu)
    assert catalog.nic(node.nic).bytes_per_s > 0
    assert node.host_memory_bytes > 0
    if node.scale_up in ("nvswitch", "nvlink-mesh"):
        assert gpu.scale_up_bytes_per_s > 0


@pytest.mark.parametrize(
    ("name", "gb_per_s"),
    [
        ("p4d.24xlarge", 400),
        ("p5.48xlarge", 3200),
        ("p5en.48xlarge", 3200),
        ("p6-b200.48xlarge", 3200),
        ("a3-highgpu-8g", 800),
        ("a3-megagpu-8g", 1600),
        ("a4-highgpu-8g", 3200),
        ("ND96asr_v4", 1600),
        ("ND96isr_H100_v5", 3200),
        ("DGX-A100-80GB", 1600),
        ("DGX-1V-32GB", 400),
    ],
)
def test_node_bandwidth_is_the_published_sum(name: str, gb_per_s: float) -> None:
    node = catalog.node(name)
    assert node.nics_per_node * catalog.nic(node.nic).bytes_per_s * 8 / 1e9 == gb_per_s


@pytest.mark.parametrize("name", catalog.names("gpu"))
def test_every_gpu_has_a_usual_node(name: str) -> None:
    usual = [w.name for w in loader.written_entries("node") if name in w.names("usual_for")]
    assert len(usual) == 1


def test_an_unknown_name_says_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        catalog.gpu("H10O")
    assert caught.value.code == "MW-E201"
    assert caught.value.where == "--cluster"
    assert "H100" in str(caught.value)
    with pytest.raises(InputError) as caught:
        catalog.model("lama-2-7b")
    assert caught.value.where == "MODEL"
    assert "llama-2-7b" in str(caught.value).casefold()
    with pytest.raises(InputError, match="gpu"):
        catalog.entry("gpus", "H100")
    with pytest.raises(InputError):
        catalog.gpu(" -_")


def test_a_lookup_parses_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    loader._parse.cache_clear()
    parsed: list[Path] = []
    real = loader.read_toml
    monkeypatch.setattr(loader, "read_toml", lambda path: parsed.append(path) or real(path))
    catalog.model("bigscience/bloom")
    assert "bloom-176b" in [path.stem for path in parsed]
    assert len(parsed) <= 6


MINE = """
name = "Mine-1"
aliases = ["mine"]
source = "sheet"
label = "vendor"
vendor = "Me"
architecture = "mine"
compute_capability = 0
memory_bytes = "64 GiB"
memory_bytes_per_s = "1.5 TB/s"
sm_count = 10
l2_bytes = "10 MiB"
boost_clock_hz = "1 GHz"
scale_up_bytes_per_s = { value = "100 GB/s", source = "test", label = "measured" }
pcie_bytes_per_s = "31.5 GB/s"
tdp_w = "0.3 kW"
year = 2026
[peak_flops_per_s]
bf16 = "100 TFLOP/s"
[sources]
sheet = "My data sheet, 2026"
test = "My own measurement, 2026-01-01"
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GPU file in a directory of ``MESHWRIGHT_PATH``."""
    path = tmp_path / "catalog" / "gpu" / "mine.toml"
    path.parent.mkdir(parents=True)
    path.write_text(MINE)
    monkeypatch.setenv("MESHWRIGHT_PATH", str(tmp_path))
    return path


def test_a_users_file_joins_the_catalog(mine: Path) -> None:
    gpu = catalog.gpu("MINE 1")
    assert isinstance(gpu, Gpu)
    assert "Mine-1" in catalog.names("gpu")
    assert gpu.memory_bytes == 64 * 2**30
    assert gpu.memory_bytes_per_s == 1.5e12
    assert gpu.tdp_w == 300.0
    assert gpu.facts["memory_bytes"].text == "64 GiB"
    assert gpu.facts["peak_flops_per_s.bf16"].source == "My data sheet, 2026"
    assert gpu.facts["scale_up_bytes_per_s"].label == "measured"


def test_a_users_file_overrides_a_bundled_one(mine: Path) -> None:
    mine.write_text(MINE.replace('"mine"]', '"H100-SXM"]'))
    assert catalog.gpu("h100-sxm").name == "Mine-1"
    assert catalog.gpu("H100-80GB-SXM").name == "H100-80GB-SXM"


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ('memory_bytes = "64 GiB"', "memory_bytes = 64", "MW-E111", ["mine.toml: memory_bytes", "80 GiB"]),
        ('"100 GB/s"', "100", "MW-E111", ["mine.toml: scale_up_bytes_per_s"]),
        ('"100 TFLOP/s"', "100", "MW-E111", ["mine.toml: peak_flops_per_s.bf16"]),
        ('"1.5 TB/s"', '"1.5 TB"', "MW-E112", ["mine.toml: memory_bytes_per_s", "not a unit"]),
        ('bf16 = "100', 'bf16_sparse = "200', "MW-E207", ["bf16_sparse", "dense"]),
        ('source = "sheet"', "", "MW-E204", ["no source"]),
        ('label = "vendor"', "", "MW-E204", ["no label", "vendor"]),
        ('label = "vendor"', 'label = "vender"', "MW-E204", ["vendor?"]),
        ('source = "test"', 'source = "tset"', "MW-E204", ["scale_up_bytes_per_s", "test?"]),
        ("compute_capability = 0\n", "", "MW-E206", ["compute_capability"]),
        ("tdp_w = ", "tpd_w = ", "MW-E206", ["tdp_w", "tpd_w"]),
        ("year = 2026", "year = 2026\nyaer = 1", "MW-E205", ["mine.toml: yaer", "year?"]),
        ("sm_count = 10", "sm_count = 0", "MW-E205", ["mine.toml: sm_count"]),
        ("year = 2026", "year = ", "MW-E203", ["mine.toml", "line 17"]),
        ('aliases = ["mine"]', 'aliases = "mine"', "MW-E205", ["aliases"]),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(mine: Path, old: str, new: str, code: str, said: list[str]) -> None:
    assert old in MINE
    mine.write_text(MINE.replace(old, new))
    with pytest.raises(InputError) as caught:
        catalog.gpu("mine")
    assert caught.value.code == code
    for words in said:
        assert words in str(caught.value)
