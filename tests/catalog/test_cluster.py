"""Cluster text and cluster files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import catalog
from meshwright.errors import InputError
from meshwright.plan.change import Case, apply_all
from meshwright.specs.hardware import Cluster
from meshwright.specs.plan import Change


def attempt(text: str) -> Cluster | InputError:
    """The cluster, or the error that says why not; anything else that is raised fails the test."""
    try:
        return catalog.cluster(text)[0]
    except InputError as error:
        return error


POSITIVE = st.integers(1, 100_000)
GPUS = st.sampled_from(["H100", "A100-80GB", "a100 40gb", "V100-32GB", "B200", "RTX 4090", "4090", "h100-pcie"])


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("8xH100", (1, 8, "H100-80GB-SXM", 8, "IB-NDR")),
        ("8 x H100", (1, 8, "H100-80GB-SXM", 8, "IB-NDR")),
        ("8 H100 GPUs", (1, 8, "H100-80GB-SXM", 8, "IB-NDR")),
        ("4xA100", (1, 4, "A100-80GB-SXM", 4, "IB-HDR")),
        ("256x8 A100-80GB", (256, 8, "A100-80GB-SXM", 8, "IB-HDR")),
        ("256x8A100-80GB", (256, 8, "A100-80GB-SXM", 8, "IB-HDR")),
        ("256x8xA100-80GB", (256, 8, "A100-80GB-SXM", 8, "IB-HDR")),
        ("2048xA100-80GB", (256, 8, "A100-80GB-SXM", 8, "IB-HDR")),
        ("2,048xA100-80GB", (256, 8, "A100-80GB-SXM", 8, "IB-HDR")),
        ("48x8 A100-80GB, 4x100Gb OPA", (48, 8, "A100-80GB-SXM", 4, "OPA-100")),
        ("24x4 V100-32GB, 4x100Gb OPA", (24, 4, "V100-32GB-SXM2", 4, "OPA-100")),
        ("16 nodes of p5.48xlarge", (16, 8, "H100-80GB-SXM", 32, "EFA-100")),
        ("16x p5.48xlarge", (16, 8, "H100-80GB-SXM", 32, "EFA-100")),
        ("4 nodes of 8xH100", (4, 8, "H100-80GB-SXM", 8, "IB-NDR")),
        ("1 node of DGX H100", (1, 8, "H100-80GB-SXM", 8, "IB-NDR")),
        ("64 A100-80GB on 16 nodes", (16, 4, "A100-80GB-SXM", 4, "IB-HDR")),
        ("8x4090", (1, 8, "RTX-4090", 1, "Ethernet-25")),
        ("8x4090 GPUs", (1, 8, "RTX-4090", 1, "Ethernet-25")),
        ("16 4090 GPUs on 2 nodes", (2, 8, "RTX-4090", 1, "Ethernet-25")),
        ("2x8 4090", (2, 8, "RTX-4090", 1, "Ethernet-25")),
        ("8 nodes of jean-zay-a100", (8, 8, "A100-80GB-SXM", 4, "OPA-100")),
    ],
)
def test_forms(text: str, want: tuple[int, int, str, int, str]) -> None:
    cluster, _ = catalog.cluster(text)
    found = (cluster.n_nodes, cluster.gpus_per_node, cluster.gpu.name, cluster.nics_per_node, cluster.nic.name)
    assert found == want
    assert cluster.text == text
    assert cluster.oversubscription == 1.0


def test_what_was_not_said_is_reported_with_an_alternative() -> None:
    cluster, assumed = catalog.cluster("256x8 A100-80GB")
    by_name = {each.name: each for each in assumed}
    assert set(by_name) == {"node", "fabric", "oversubscription"}
    change = by_name["fabric"].alternative
    assert change is not None
    assert (change.path, change.value) == ("cluster.nics_per_node", cluster.nics_per_node // 2)
    spine = by_name["oversubscription"].alternative
    assert spine is not None
    assert (spine.path, spine.value) == ("cluster.oversubscription", 2.0)


def test_what_was_said_is_not_assumed() -> None:
    _, assumed = catalog.cluster("16 nodes of p5.48xlarge, 2:1 oversubscribed")
    assert assumed == ()
    _, assumed = catalog.cluster("48x8 A100-80GB, 4x100Gb OPA, 2:1 oversubscribed")
    assert [each.name for each in assumed] == ["node"]
    _, assumed = catalog.cluster("48x8 A100-80GB, 200Gb RoCE, 1:1")
    assert [each.name for each in assumed] == ["node", "fabric"]


def test_one_node_has_no_fabric_to_assume() -> None:
    _, assumed = catalog.cluster("8xH100")
    assert [each.name for each in assumed] == ["node"]


def test_a_name_that_leaves_the_variant_open_is_reported() -> None:
    _, assumed = catalog.cluster("8xA100")
    assert assumed[0].name == "gpu"
    assert assumed[0].value == "A100-80GB-SXM"
    _, assumed = catalog.cluster("8xA100-80GB")
    assert "gpu" not in [each.name for each in assumed]


def test_oversubscription_thins_the_nics() -> None:
    full, _ = catalog.cluster("4x8 H100, 8x400Gb IB")
    thin, _ = catalog.cluster("4x8 H100, 8x400Gb IB, 2:1 oversubscribed")
    assert full.nic_bytes_per_s == 8 * 50e9
    assert thin.nic_bytes_per_s == full.nic_bytes_per_s / 2


@given(n_nodes=st.integers(1, 65_536), gpus_per_node=st.integers(1, 16), gpu=GPUS)
def test_nodes_by_gpus(n_nodes: int, gpus_per_node: int, gpu: str) -> None:
    cluster, _ = catalog.cluster(f"{n_nodes}x{gpus_per_node} {gpu}")
    assert (cluster.n_nodes, cluster.gpus_per_node) == (n_nodes, gpus_per_node)
    assert cluster.n_gpus == n_nodes * gpus_per_node
    assert cluster.nics_per_node >= 1


@given(count=POSITIVE, gpu=GPUS)
def test_a_count_is_whole_nodes_or_refused_with_the_nearest(count: int, gpu: str) -> None:
    found = attempt(f"{count}x {gpu}")
    if isinstance(found, Cluster):
        assert found.n_gpus == count
        assert count % 8 == 0 or (count < 8 and found.n_nodes == 1)
        return
    assert found.code == "MW-E211"
    assert count > 8
    assert count % 8
    assert str(count - count % 8) in str(found.nearest)
    assert str(count - count % 8 + 8) in str(found.nearest)


@given(count=POSITIVE, n_nodes=st.integers(1, 500))
def test_a_count_on_nodes_divides_or_is_refused(count: int, n_nodes: int) -> None:
    text = f"{count} A100-80GB on {n_nodes} nodes"
    if count % n_nodes:
        with pytest.raises(InputError, match="do not divide"):
            catalog.cluster(text)
    else:
        cluster, _ = catalog.cluster(text)
        assert (cluster.n_nodes, cluster.n_gpus) == (n_nodes, count)


KINDS = st.sampled_from(["IB", "RoCE", "OPA", "Ethernet", "EFA"])


@given(
    nics=st.integers(1, 32),
    rate=st.tuples(st.sampled_from([25, 50, 100, 200, 400, 800]), KINDS),
    gap=st.sampled_from(["", " "]),
    ratio=st.integers(1, 8),
)
def test_the_fabric_is_what_was_said(nics: int, rate: tuple[int, str], gap: str, ratio: int) -> None:
    speed, kind = rate
    text = f"16x8 H100,{gap}{nics}x{speed}Gb {kind},{gap}{ratio}:1 oversubscribed"
    cluster, _ = catalog.cluster(text)
    assert cluster.nic_bytes_per_s == pytest.approx(nics * speed * 1e9 / 8 / ratio)


@given(st.text(max_size=40))
def test_any_text_is_a_cluster_or_an_input_error(text: str) -> None:
    found = attempt(text)
    assert found.n_gpus >= 1 if isinstance(found, Cluster) else found.exit_code == 2


WORDS = ["8", "x", " ", "H100", "nodes of", "on", ",", "4x100Gb", "IB", "2:1", "p5.48xlarge", "0"]


@given(st.lists(st.sampled_from(WORDS), max_size=8))
def test_any_mix_of_words_is_a_cluster_or_an_input_error(words: list[str]) -> None:
    found = attempt("".join(words))
    assert found.n_gpus >= 1 if isinstance(found, Cluster) else found.exit_code == 2


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("8xH10O", "MW-E201", "H100?"),
        ("16 nodes of p5.48xlrge", "MW-E201", "p5.48xlarge?"),
        ("30 A100-80GB on 4 nodes", "MW-E212", "28 / 32"),
        ("30xA100-80GB", "MW-E211", "24 / 32"),
        ("4x16 p5.48xlarge", "MW-E212", "4x8"),
        ("0x8 H100", "MW-E215", "none"),
        ("0xH100", "MW-E215", "none"),
        ("", "MW-E210", "8xH100"),
        ("8", "MW-E210", "8xH100"),
        (", 4x100Gb OPA", "MW-E210", "8xH100"),
        ("nowhere.toml", "MW-E216", "nowhere.toml"),
    ],
)
def test_what_is_refused(text: str, code: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        catalog.cluster(text)
    assert caught.value.code == code
    assert said in str(caught.value)
    assert "--cluster" in str(caught.value)


def test_local_counts_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 3 * 2**20, "SC_PAGE_SIZE": 4096}.__getitem__)
    cluster, assumed = catalog.cluster("local")
    assert (cluster.n_nodes, cluster.gpus_per_node) == (1, 6)
    assert cluster.host_memory_bytes == 12 * 2**30
    assert cluster.gpu.memory_bytes == 2 * 2**30
    assert cluster.gpu.facts["memory_bytes"].label == "measured"
    assert cluster.nic.kind == "loopback"
    assert "6 CPU cores, 12.0 GiB" in str(assumed[0].value)


def test_a_cluster_file(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(
        'n_nodes = 12\ngpu = "A100-80GB"\ngpus_per_node = 4\nnic = "200 Gb/s RoCE"\nnics_per_node = 2\n'
        'host_memory_bytes = "256 GiB"\nscale_up = "pcie"\ncpu_vendor = "intel"\noversubscription = 3.0\n'
    )
    cluster, assumed = catalog.cluster(str(path))
    assert (cluster.n_nodes, cluster.gpus_per_node, cluster.nics_per_node) == (12, 4, 2)
    assert (cluster.nic.name, cluster.scale_up, cluster.cpu_vendor) == ("RoCE-200", "pcie", "intel")
    assert cluster.host_memory_bytes == 256 * 2**30
    assert cluster.nic_bytes_per_s == pytest.approx(2 * 25e9 / 3)
    assert assumed == ()


def test_a_cluster_file_assumes_only_what_it_does_not_say(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('n_nodes = 2\ngpu = "A100-80GB"\ngpus_per_node = 4\nscale_up = "pcie"\nnic = "IB-NDR"\n')
    _cluster, assumed = catalog.cluster(str(path))
    by_name = {each.name: each for each in assumed}
    assert list(by_name) == ["node", "fabric", "oversubscription"]
    assert "nics_per_node, host_memory_bytes, cpu_vendor" in by_name["node"].why
    assert "gpus_per_node" not in by_name["node"].why
    assert by_name["fabric"].value == "4x IB-NDR"
    assert "number" in by_name["fabric"].why


def test_a_wrong_adapter_of_a_file_is_answered_with_what_fits_there(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('n_nodes = 2\nnode = "p5.48xlarge"\nnic = "foo"\n')
    with pytest.raises(InputError) as caught:
        catalog.cluster(str(path))
    example = str(caught.value.nearest).split("'")[1]
    path.write_text(f'n_nodes = 2\nnode = "p5.48xlarge"\nnic = "{example}"\n')
    assert catalog.cluster(str(path))[0].nic.kind == "omni-path"


@pytest.mark.parametrize("text", ["8*A100", "A100x8", "A100 x 8", "2*8 A100-80GB", "2 * 8*A100-80GB"])
def test_other_ways_to_write_counts_get_the_form_that_is_read(text: str) -> None:
    with pytest.raises(InputError, match="Write it like") as caught:
        catalog.cluster(text)
    assert catalog.cluster(str(caught.value.nearest).split("'")[1])[0].gpus_per_node == 8


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1000000000000xH100", "MW-E215"),
        ("9" * 5000 + "xH100", "MW-E215"),
        ("1000000x8 H100", "MW-E215"),
        ("2x8 H100, 4000000000x100Gb IB", "MW-E215"),
        ("2x8 H100, 100000:1", "MW-E214"),
    ],
)
def test_absurd_sizes_are_refused_with_the_most(text: str, code: str) -> None:
    with pytest.raises(InputError, match="The most is") as caught:
        catalog.cluster(text)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('gpu = "H100"\n', "missing: n_nodes"),
        ("n_nodes = 2\n", "missing: gpu"),
        ('n_nodes = 2\ngpu = "H100"\nnics_pr_node = 8\n', "nics_per_node?"),
        ('n_nodes = 0\ngpu = "H100"\n', "site.toml: n_nodes"),
        ('n_nodes = 2\ngpu = "H10O"\n', "site.toml: gpu"),
        ('n_nodes = 2\ngpu = "H100"\nhost_memory_bytes = 256\n', "site.toml: host_memory_bytes"),
        ('n_nodes = 2\ngpu = "H100"\noversubscription = 0.5\n', "site.toml: oversubscription"),
        ('n_nodes = 2\ngpu = "H100"\nscale_up = "rope"\n', "site.toml: scale_up"),
        ('n_nodes = 2\nnode = "p5.48xlarge"\ngpus_per_node = 16\n', "p5.48xlarge has 8"),
        ("n_nodes = \n", "site.toml"),
    ],
)
def test_a_wrong_cluster_file(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        catalog.cluster(str(path))
    assert said in str(caught.value)


X900 = """
name = "X900"
source = "test"
label = "inferred"
vendor = "Nobody"
architecture = "ampere"
compute_capability = 80
memory_bytes = "80 GiB"
memory_bytes_per_s = "2039 GB/s"
sm_count = 108
l2_bytes = "40 MiB"
boost_clock_hz = "1410 MHz"
scale_up_bytes_per_s = "300 GB/s"
pcie_bytes_per_s = "31.5 GB/s"
tdp_w = "400 W"
year = 2026
[peak_flops_per_s]
bf16 = "312 TFLOP/s"
[sources]
test = "made up for a test"
"""


@pytest.fixture
def x900(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GPU of one's own that no node is the usual one for, and whose name begins with an x."""
    folder = tmp_path / "mine" / "catalog" / "gpu"
    folder.mkdir(parents=True)
    (folder / "X900.toml").write_text(X900)
    monkeypatch.setenv("MESHWRIGHT_PATH", str(tmp_path / "mine"))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("8 X900", (1, 8)),
        ("8X900", (1, 8)),
        ("8xX900", (1, 8)),
        ("8 x X900", (1, 8)),
        ("4 x900 GPUs", (1, 4)),
        ("X900x8", None),
        ("2x8 X900, 4x400Gb IB", (2, 8)),
        ("2x8xX900, 4x400Gb IB", (2, 8)),
        ("2x8 x X900, 4x400Gb IB", (2, 8)),
        ("2 nodes of 8 X900, 4x400Gb IB", (2, 8)),
        ("16 X900 on 2 nodes, 4x400Gb IB", (2, 8)),
        ("16 X900, 4x400Gb IB", (2, 8)),
    ],
)
def test_a_name_may_begin_with_an_x(x900: Path, text: str, want: tuple[int, int] | None) -> None:
    found = attempt(text)
    if want is None:
        assert isinstance(found, InputError)
        assert "8xX900" in str(found.nearest)
        return
    assert isinstance(found, Cluster), found
    assert (found.gpu.name, found.n_nodes, found.gpus_per_node) == ("X900", *want)


def test_a_gpu_without_a_usual_node_gets_one_that_is_reported(x900: Path) -> None:
    cluster, assumed = catalog.cluster("2x8 X900, 4x400Gb IB")
    assert (cluster.scale_up, cluster.cpu_vendor) == ("nvswitch", "other")
    assert (cluster.nic.name, cluster.nics_per_node) == ("IB-NDR", 4)
    assert cluster.host_memory_bytes == 3 * 8 * 80 * 2**30
    assert [each.name for each in assumed] == ["scale_up", "host_memory_bytes", "cpu_vendor", "oversubscription"]
    cluster, assumed = catalog.cluster("2x4 X900, 400Gb IB, 2:1")
    assert (cluster.scale_up, cluster.nics_per_node) == ("pcie", 4)
    assert [each.name for each in assumed] == ["scale_up", "host_memory_bytes", "cpu_vendor", "fabric"]
    _, assumed = catalog.cluster("16 X900, 4x400Gb IB")
    assert assumed[0].name == "node"
    with pytest.raises(InputError, match=r"adapters.*8x400Gb IB") as caught:
        catalog.cluster("2x8 X900")
    assert caught.value.code == "MW-E210"


def test_a_file_that_says_everything_needs_no_usual_node(x900: Path) -> None:
    path = x900 / "mine.toml"
    rest = 'scale_up = "nvlink-mesh"\nhost_memory_bytes = "1 TB"\ncpu_vendor = "amd"\noversubscription = 1.0\n'
    path.write_text(f'gpu = "X900"\nn_nodes = 2\ngpus_per_node = 4\nnic = "400Gb IB"\nnics_per_node = 2\n{rest}')
    cluster, assumed = catalog.cluster(str(path))
    assert assumed == ()
    assert (cluster.n_gpus, cluster.scale_up, cluster.nics_per_node, cluster.host_memory_bytes) == (
        8,
        "nvlink-mesh",
        2,
        1e12,
    )
    path.write_text('gpu = "X900"\nn_nodes = 2\nnic = "400Gb IB"\n')
    _, assumed = catalog.cluster(str(path))
    assert {each.name for each in assumed} == {
        "node",
        "scale_up",
        "host_memory_bytes",
        "cpu_vendor",
        "fabric",
        "oversubscription",
    }
    path.write_text('gpu = "X900"\nn_nodes = 2\n')
    with pytest.raises(InputError, match="nic = "):
        catalog.cluster(str(path))


def test_a_directory_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "d.toml").mkdir()
    for text in (str(tmp_path), str(tmp_path / "d.toml")):
        with pytest.raises(InputError, match="is a directory") as caught:
            catalog.cluster(text)
        assert caught.value.code == "MW-E216"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("30 GPUs on 4 nodes", "30 A100-80GB on 4 nodes"),
        ("4x8 GPUs", "4x8 A100-80GB"),
        ("4 nodes of 8 GPUs", "4 nodes of 8 A100-80GB"),
        ("64 gpus", "64 A100-80GB"),
    ],
)
def test_a_count_without_a_name_is_told_so(text: str, form: str) -> None:
    with pytest.raises(InputError, match="name is missing") as caught:
        catalog.cluster(text)
    assert form in str(caught.value.nearest)


@pytest.mark.parametrize(
    ("text", "n_nodes", "per_node", "domain", "nics"),
    [
        ("64x4 GB200", 64, 4, 72, 72),
        ("256 GB200", 64, 4, 72, 72),
        ("8xGB200", 2, 4, 8, 8),
        ("36x2 GB200", 36, 2, 36, 36),
        ("64x4 GB200, NVL64", 64, 4, 64, 64),
        ("GB200 NVL72", 18, 4, 72, 72),
        ("2x GB300-NVL72, 2:1", 36, 4, 72, 72),
        ("GB200 NVL36", 9, 4, 36, 36),
        ("Rubin NVL72", 18, 4, 72, 144),
        ("48 nodes of Atlas 800T A3", 48, 16, 768, 768),
        ("8xH100", 1, 8, 8, 8),
        ("16x8 H100, 4x400Gb IB", 16, 8, 8, 4),
        ("8xH100 NVL", 1, 8, 8, 2),
        ("8xMI250X", 1, 8, 8, 4),
    ],
)
def test_scale_up_domains(text: str, n_nodes: int, per_node: int, domain: int, nics: int) -> None:
    found, _assumed = catalog.cluster(text)
    assert (found.n_nodes, found.gpus_per_node) == (n_nodes, per_node)
    assert found.domain_gpus == domain
    assert found.nics_per_domain == nics


@pytest.mark.parametrize("text", ["1xGB200", "2xGB200", "3xGB200", "5 Ascend 910C", "16 Ascend 910C"])
def test_part_of_a_node_is_its_own_domain(text: str) -> None:
    found, _assumed = catalog.cluster(text)
    assert found.n_nodes == 1
    assert found.domain_gpus == found.n_gpus


def test_a_larger_cluster_of_the_same_trays_is_one_domain() -> None:
    found, _assumed = catalog.cluster("2xGB200")
    case = Case(None, found, None)  # type: ignore[arg-type]
    changes = [Change(path="cluster.gpus_per_node", value=4), Change(path="cluster.n_nodes", value=20)]
    grown = apply_all(changes, case).cluster
    assert (grown.n_gpus, grown.domain_gpus) == (80, 72)


def test_a_rack_is_said_to_be_assumed() -> None:
    found, assumed = catalog.cluster("2x GB200 NVL72")
    node = next(each for each in assumed if each.name == "node")
    assert "36 nodes of 4" in node.value
    assert found.n_gpus == 144
    assert [each.name for each in assumed].count("node") == 1


@given(domain=st.integers(1, 100), per_node=st.integers(1, 16), n_nodes=st.integers(1, 100))
def test_a_domain_is_whole_nodes_and_no_more_than_there_are(domain: int, per_node: int, n_nodes: int) -> None:
    plain, _assumed = catalog.cluster("8xH100")
    fields = {name: getattr(plain, name) for name in Cluster.model_fields}
    changed = fields | {"gpus_per_node": per_node, "n_nodes": n_nodes, "scale_up_domain_gpus": domain}
    if domain % per_node:
        with pytest.raises(InputError, match="whole number of nodes") as caught:
            Cluster.model_validate(changed)
        assert caught.value.code == "MW-E217"
        return
    found = Cluster.model_validate(changed)
    assert found.domain_gpus == min(domain, found.n_gpus)
    assert found.nics_per_domain * per_node == found.nics_per_node * found.domain_gpus


def test_a_file_says_its_domain_and_fabric(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'n_nodes = 32\ngpu = "GB200"\ngpus_per_node = 4\nscale_up_domain_gpus = 64\nfabric = "rail-optimised"\n'
    )
    found, _assumed = catalog.cluster(str(path))
    assert found.domain_gpus == 64
    assert found.fabric == "rail-optimised"
    path.write_text('n_nodes = 32\ngpu = "GB200"\nfabric = "rails"\n')
    with pytest.raises(InputError, match="fabric"):
        catalog.cluster(str(path))
