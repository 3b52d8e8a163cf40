"""The same cluster in another size is the one that its text describes."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright import catalog
from meshwright.errors import InputError
from meshwright.plan.resize import counts, node_gpus, resized

TEXTS = (
    "8xH100",
    "H100",
    "2x4 V100-32GB",
    "p5.48xlarge",
    "2 nodes of p4d.24xlarge",
    "4xA100-80GB, 2x200Gb IB",
    "64 H100 on 8 nodes",
    "8x4090",
    "1,024xH100",
    "128 A100 80GB GPUs",
    "64xH100, 8x400Gb IB, 2:1 oversubscribed",
    "GB200 NVL72",
    "2x GB300 NVL72, 4x IB-NDR",
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("n_gpus", [1, 2, 4, 8, 16, 128])
def test_its_text_describes_it(text: str, n_gpus: int) -> None:
    before = catalog.cluster(text)[0]
    after = resized(before, n_gpus)
    assert after.n_gpus == n_gpus
    described = catalog.cluster(after.text)[0]
    assert described.model_copy(update={"text": ""}) == after.model_copy(update={"text": ""})
    assert (after.gpu, after.nic, after.oversubscription) == (before.gpu, before.nic, before.oversubscription)


def test_what_was_set_is_carried_over() -> None:
    before = catalog.cluster("8xH100")[0].model_copy(update={"nics_per_node": 3, "oversubscription": 2.0})
    after = resized(before, 32)
    assert (after.nics_per_node, after.oversubscription, after.n_nodes) == (3, 2.0, 4)
    assert resized(before, 8) is before


def test_a_file_keeps_its_fabric(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('gpu = "A100-80GB"\nn_nodes = 4\ngpus_per_node = 4\nnic = "200 Gb/s RoCE"\nnics_per_node = 2\n')
    before = catalog.cluster(str(path))[0]
    after = resized(before, 64)
    assert (after.n_nodes, after.gpus_per_node, after.nics_per_node) == (16, 4, 2)
    assert after.nic == before.nic
    part = resized(before, 2)
    assert (part.n_nodes, part.gpus_per_node, part.nics_per_node) == (1, 2, 1)


def test_only_whole_nodes_above_one() -> None:
    with pytest.raises(InputError, match="24 / 32") as caught:
        resized(catalog.cluster("8xH100")[0], 30)
    assert caught.value.code == "MW-E211"


def test_this_machine_does_not_grow() -> None:
    here = catalog.cluster("local")[0]
    assert counts(here)[-1] == here.n_gpus
    with pytest.raises(InputError) as caught:
        resized(here, 8 * here.n_gpus)
    assert caught.value.code == "MW-E212"


def test_counts_are_even_parts_then_nodes() -> None:
    cluster = catalog.cluster("H100")[0]
    assert node_gpus(cluster) == 8
    assert counts(cluster, 3) == [1, 2, 4, 8, 16, 24]
