"""Jobs refuse what cannot be trained."""

from __future__ import annotations

import pytest

from meshwright import catalog
from meshwright.errors import InputError
from meshwright.specs.job import TrainingJob


def test_learned_positions_limit_the_sequence() -> None:
    with pytest.raises(InputError) as caught:
        TrainingJob(model=catalog.model("gpt2"), seq_len=2048, global_batch=8)
    assert caught.value.where == "--seq-len"
    assert "1024" in (caught.value.nearest or "")
    assert TrainingJob(model=catalog.model("llama-2-7b"), seq_len=32768, global_batch=8).tokens_per_step == 8 * 32768


def test_bytes_of_the_formats() -> None:
    job = TrainingJob(model=catalog.model("gpt2"), seq_len=512, global_batch=8, precision="fp16", grad_dtype="fp32")
    assert (job.element_bytes, job.grad_bytes) == (2, 4)


def test_an_image_has_no_more_tokens_than_its_positions() -> None:
    assert TrainingJob(model=catalog.model("vit-base"), seq_len=197, global_batch=8).seq_len == 197
    with pytest.raises(InputError, match="197 learned positions"):
        TrainingJob(model=catalog.model("vit-base"), seq_len=256, global_batch=8)
    # Positions of an image encoder bound its images, not the text around them.
    assert TrainingJob(model=catalog.model("llava-1.5-7b"), seq_len=4096, global_batch=8).seq_len == 4096


def test_narrow_recipes_keep_activations_in_bf16() -> None:
    def bytes_of(precision: str) -> int:
        return TrainingJob.model_validate(
            {"model": catalog.model("gpt2"), "seq_len": 512, "global_batch": 8, "precision": precision}
        ).element_bytes

    assert [bytes_of(p) for p in ("fp32", "tf32", "fp16", "bf16", "fp8", "nvfp4")] == [4, 4, 2, 2, 2, 2]


@pytest.mark.parametrize(("said", "meant"), [("adamw", "adam"), ("fused_adam", "adam"), ("adamw8bit", "adam_8bit")])
def test_optimizers_by_their_other_names(said: str, meant: str) -> None:
    job = TrainingJob.model_validate(
        {"model": catalog.model("gpt2"), "seq_len": 512, "global_batch": 8, "optimizer": said}
    )
    assert job.optimizer == meant
