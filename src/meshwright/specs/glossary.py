"""What every name means, in one sentence each: the only place where a number is defined for people.

``mw explain NAME``, the documentation and the translations all read it. Rules are described where they are checked
(``costmodel.RULES``), formulas by their own docstrings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from meshwright.i18n import N_

#: kind -> what it is called for people
KINDS: Mapping[str, str] = {
    "result": N_("a result"),
    "term": N_("a term of the step time"),
    "memory": N_("a class of device memory"),
    "phase": N_("a phase of a run with its own memory peak"),
    "layout": N_("a column of the layout"),
    "job": N_("a field of the job"),
    "cluster": N_("a field of the cluster"),
    "error": N_("an error"),
    "rule": N_("a rule that layouts must keep"),
    "formula": N_("a formula of the cost model"),
    "constant": N_("a physical constant of the cost model"),
    "word": N_("a word of the pages"),
    "schedule": N_("a pipeline schedule"),
    "block": N_("a kind of block"),
    "collective": N_("an algorithm of collectives"),
}


class Term(NamedTuple):
    """One name: its kind (a key of KINDS), its unit (None: none or a plain count) and its meaning, untranslated."""

    kind: str
    unit: str | None
    what: str


_RESULTS = {
    "step_time_s": Term(
        "result",
        "s",
        N_(
            "Time of one optimizer step, from the first forward to the end of the optimizer; the terms of "
            "breakdown_s add up to it."
        ),
    ),
    "step_time_interval_s": Term(
        "result",
        "s",
        N_(
            "The range that holds the measured step time in 80 % of cases; its width comes from errors on runs "
            "that no constant was fitted to."
        ),
    ),
    "tokens_per_s_per_gpu": Term("result", "1/s", N_("Tokens of one step over the step time and the number of GPUs.")),
    "mfu_ratio": Term(
        "result",
        None,
        N_(
            "Model FLOPs utilisation: FLOPs that the model needs (causal attention, no recompute) over what the "
            "GPUs could do in the step time at their dense peak."
        ),
    ),
    "hfu_ratio": Term(
        "result", None, N_("Hardware FLOPs utilisation: like mfu_ratio, with the recomputed FLOPs counted as work.")
    ),
    "not_validated": Term(
        "result",
        None,
        N_(
            "What of the layout no measured run was compared with, by which the interval is wider: the GPU (gpu, "
            "community_gpu), the kernels (attention, blocks, precision), the links (fabric, overlap), the cut "
            "(schedule, sharding, context_parallel, experts, offload, scale), what is trained (adapter, post_training)."
        ),
    ),
    "flops_convention": Term(
        "result", None, N_("How the FLOPs of mfu_ratio are counted; figures under another convention do not compare.")
    ),
    "breakdown_s": Term(
        "result",
        "s",
        N_(
            "Where the step goes: terms on the critical path that add up to step_time_s; communication counts "
            "only where nothing hides it."
        ),
    ),
    "time_to_train_s": Term(
        "result", "s", N_("Time for the given tokens at the predicted step time, without failures.")
    ),
    "time_to_train_interval_s": Term("result", "s", N_("time_to_train_s at both ends of the step time's 80 % range.")),
    "time_to_train_with_failures_s": Term(
        "result",
        "s",
        N_(
            "Time for the given tokens with failures, restarts and checkpoints: the median (p50), and what nine of ten "
            "trainings stay below (p90)."
        ),
    ),
    "cost_usd": Term("result", "usd", N_("GPU-hours of the median time with failures, times the price of one.")),
    "energy_j": Term("result", "J", N_("Mean power of the site times the median time with failures.")),
    "searched": Term("result", None, N_("Layouts that keep every rule, fit the memory and were scored.")),
    "rejected": Term(
        "result",
        None,
        N_(
            "Layouts that were left out, counted by the first rule that each breaks; under memory those that keep"
            " the rules but do not fit."
        ),
    ),
    "feasible": Term("result", None, N_("Whether any layout keeps the rules and fits the memory.")),
    "pareto": Term(
        "result",
        None,
        N_(
            "Layouts that are worth their time, fastest first: each saves at least 2 % of memory or of energy against "
            "all faster ones here. Cost follows the time."
        ),
    ),
    "chosen": Term("result", None, N_("Place of the chosen layout in layouts; 0 is the first.")),
    "runners_up": Term(
        "result",
        None,
        N_("Why each other layout loses: the differences of its terms to those of the chosen one, largest loss first."),
    ),
    "assumed": Term(
        "result",
        None,
        N_(
            "Values that nobody gave, why they were taken, and the step time under the alternative over the step "
            "time shown."
        ),
    ),
    "step_time_ratio": Term(
        "result", None, N_("Step time under a change over the step time without it; below one is faster.")
    ),
    "remedies": Term(
        "result", None, N_("Changes under which it fits, each evaluated by the cost model before it is named.")
    ),
    "needs": Term("result", None, N_("What the run asks of storage, data loading, hosts and power.")),
    "checkpoint_bytes": Term(
        "result",
        "bytes",
        N_(
            "Size of one checkpoint: working weights and optimizer state (for Adam 12 bytes a parameter: fp32 weights "
            "and two moments); of a LoRA job those of its adapters."
        ),
    ),
    "checkpoint_bytes_per_s": Term(
        "result",
        "bytes/s",
        N_(
            "Write rate at which checkpoints stop the training for 5 % of the time at most: one every 30 minutes, or "
            "as often as failures ask for where that is sooner."
        ),
    ),
    "loader_tokens_per_s": Term("result", "1/s", N_("Tokens that data loading must deliver for the whole cluster.")),
    "power_w": Term("result", "W", N_("Peak power of the site: every GPU at its limit, hosts and building included.")),
    "nearest": Term(
        "result", None, N_("Where nothing fits: the legal layout with the lowest peak, and by how much it misses.")
    ),
    "misses_bytes": Term("result", "bytes", N_("By how much the nearest layout's peak exceeds what a GPU may fill.")),
    "budget_bytes": Term(
        "result", "bytes", N_("What a GPU may fill: its usable memory, or --max-memory where that is less.")
    ),
    "tight_faster": Term(
        "result",
        None,
        N_("The fastest layout that fits only tightly, where it is faster than the chosen one; null otherwise."),
    ),
    "slower_ratio": Term("result", None, N_("Step time of a runner-up over that of the chosen layout.")),
    "terms_s": Term(
        "result", "s", N_("By how much each term of a runner-up's step exceeds that of the chosen layout.")
    ),
    "layout_index": Term("result", None, N_("Place of a runner-up in layouts; 0 is the first.")),
    "next_command": Term("result", None, N_("A command that goes on from here.")),
    "elapsed_s": Term("result", "s", N_("Time that the search took.")),
    "first_incumbent_s": Term("result", "s", N_("Time until the search had its first layout that fits.")),
    "n_parameters": Term("result", None, N_("Parameters of the model, all GPUs together.")),
    "n_gpus": Term("result", None, N_("GPUs of the cluster.")),
    "tokens_per_step": Term("result", None, N_("Tokens of one optimizer step: seq_len x global_batch.")),
    "layouts": Term("result", None, N_("The fastest layouts that were found, best first, each with its estimate.")),
    "interrupted": Term(
        "result",
        None,
        N_("Whether the search was stopped early; the layouts are then the best of those that were visited."),
    ),
    "memory": Term("result", None, N_("What fills the device memory of the worst rank, and whether it fits.")),
    "peak_allocated_bytes": Term(
        "result", "bytes", N_("Most device memory that tensors and libraries hold at once on the worst rank.")
    ),
    "peak_reserved_bytes": Term(
        "result",
        "bytes",
        N_(
            "peak_allocated_bytes plus what the caching allocator holds without using it; where it fits with a margin "
            "of 4 %, fits is yes."
        ),
    ),
    "host_bytes": Term("result", "bytes", N_("Host memory of one node that training itself needs.")),
    "capacity_bytes": Term("result", "bytes", N_("Memory of one GPU.")),
    "fits": Term(
        "result",
        None,
        N_(
            "yes: the reserved peak plus a margin of 4 % fits; tight: only the allocated peak fits, so the run may run "
            "out of memory through fragmentation; no: it does not fit."
        ),
    ),
    "worst_pipeline_rank": Term(
        "result", None, N_("The pipeline rank whose memory peaks highest; 0 holds the embedding.")
    ),
    "p50": Term("result", "s", N_("Half of such trainings take no longer.")),
    "p90": Term("result", "s", N_("Nine of ten such trainings take no longer.")),
    "step_energy_j": Term("result", "J", N_("Energy of one step of the whole site.")),
    "step_cost_usd": Term("result", "USD", N_("What one step of all GPUs costs.")),
    "mean_power_w": Term("result", "W", N_("Mean power of the site over a step: GPUs, their hosts and the building.")),
    "price": Term("result", None, N_("What a GPU costs by the hour, where, when and by whom.")),
    "usd_per_gpu_hour": Term("result", "usd", N_("Price of one GPU for one hour.")),
    "usd_per_hour": Term("result", "usd", N_("Price of all GPUs for one hour.")),
    "provider": Term("result", None, N_("Who sells it.")),
    "tier": Term("result", None, N_("How it is paid for: on demand, reserved, spot, bought, or as given.")),
    "region": Term("result", None, N_("Where the price holds.")),
    "date": Term("result", None, N_("When the price held.")),
    "failures": Term("result", None, N_("What failures do to the job, and how often it saves because of them.")),
    "mttf_s": Term("result", "s", N_("Mean time between two failures that stop the job.")),
    "checkpoint_interval_s": Term(
        "result", "s", N_("Work between two checkpoints with which the job gets on fastest, failures counted.")
    ),
    "checkpoint_write_s": Term("result", "s", N_("Time for which one checkpoint stops the training.")),
    "effective_ratio": Term("result", "ratio", N_("Share of the time in which the training gets on (ETTR).")),
    "count": Term("result", None, N_("Failures to be expected during the training.")),
    "conditions": Term("result", None, N_("The deadline and the budget that were asked for, and what is reached.")),
    "limit": Term("result", None, N_("The deadline in seconds, or the budget in USD.")),
    "met": Term("result", None, N_("Whether the chosen layout keeps the limit in the median.")),
    "remedy": Term("result", None, N_("The smallest larger cluster that keeps the limit.")),
    "buys": Term("result", None, N_("What more of something buys: twice the adapters of a node.")),
    "objective": Term("result", None, N_("What ranks the layouts: time, memory, cost or energy.")),
    "placement": Term("result", None, N_("Node, GPU and adapter of every rank, and its place along every axis.")),
    "total": Term("result", None, N_("The number of the whole training that an assumption moves.")),
    "total_ratio": Term("result", "ratio", N_("That number under the alternative over the same as assumed.")),
}
_TERMS = {
    "forward": Term("term", "s", N_("Forward computation of the slowest pipeline stage, all micro-batches.")),
    "backward": Term("term", "s", N_("Backward computation of the slowest pipeline stage, all micro-batches.")),
    "recompute": Term("term", "s", N_("Forward computation done again in the backward, to save memory.")),
    "tp_comm": Term(
        "term",
        "s",
        N_(
            "Tensor-parallel all-reduce, or reduce-scatter and all-gather with sequence parallelism, that nothing"
            " hides."
        ),
    ),
    "cp_comm": Term("term", "s", N_("Context-parallel communication that nothing hides.")),
    "ep_comm": Term("term", "s", N_("Expert-parallel all-to-all that nothing hides.")),
    "pp_comm": Term(
        "term", "s", N_("Sending activations and their gradients between pipeline stages, where nothing hides it.")
    ),
    "dp_comm": Term(
        "term", "s", N_("Reducing gradients and gathering weights across data-parallel ranks, where nothing hides it.")
    ),
    "bubble": Term("term", "s", N_("Waiting of the slowest stage while the pipeline fills and drains.")),
    "launch": Term("term", "s", N_("Time in which the GPU waits for the CPU to launch kernels.")),
    "contention": Term(
        "term",
        "s",
        N_("How much slower computation runs while communication takes its memory bandwidth and processors."),
    ),
    "optimizer": Term("term", "s", N_("Gradient clipping and the update of the weights.")),
    "data": Term("term", "s", N_("Waiting for input data; zero unless modelled.")),
    "checkpoint": Term("term", "s", N_("Stalls for checkpoints, spread over the steps; zero unless modelled.")),
    "straggler": Term("term", "s", N_("Waiting for the slowest rank; from straggler_ratio of the job.")),
}
_MEMORY = {
    "weights": Term("memory", "bytes", N_("Working copy of the weights on this rank.")),
    "gradients": Term("memory", "bytes", N_("Gradients as they are accumulated.")),
    "optimizer": Term(
        "memory",
        "bytes",
        N_("Optimizer state: for Adam fp32 weights and two moments, divided over data parallelism by ZeRO."),
    ),
    "activations": Term(
        "memory", "bytes", N_("What the forward keeps for the backward, for every micro-batch in flight.")
    ),
    "logits": Term("memory", "bytes", N_("Output of the head and the loss's copies of it, on the last pipeline rank.")),
    "gather": Term(
        "memory",
        "bytes",
        N_(
            "What is gathered for the block that runs: its input under sequence parallelism, its weights and those of "
            "the next under ZeRO-3."
        ),
    ),
    "buffers": Term("memory", "bytes", N_("Buffers of communicators and work space of libraries.")),
    "context": Term("memory", "bytes", N_("The device context, kernels and library handles.")),
}
_PHASES = {
    "load": Term("phase", "bytes", N_("While the model is built and weights are loaded.")),
    "first_step": Term("phase", "bytes", N_("The first step, before optimizer states exist.")),
    "steady": Term("phase", "bytes", N_("Every later step.")),
    "longest": Term("phase", "bytes", N_("A step with the longest sequence.")),
    "save": Term("phase", "bytes", N_("While a checkpoint is saved.")),
}
_LAYOUT = {
    "layout": Term("result", None, N_("How the job is cut over the GPUs; dp x tp x cp x pp is their number.")),
    "dp": Term("layout", None, N_("Data parallelism: replicas, each with its share of the batch.")),
    "dp_shard": Term("layout", None, N_("Replicas over which ZeRO shards; dp unless dp_replicate says otherwise.")),
    "dp_replicate": Term(
        "layout", None, N_("Shard groups that hold equal copies (HSDP): dp is dp_shard times dp_replicate.")
    ),
    "cp": Term("layout", None, N_("Context parallelism: GPUs that share each sequence.")),
    "cp_kind": Term(
        "layout",
        None,
        N_(
            "How context parallelism exchanges: ring passes keys and values on, allgather gathers them, ulysses turns "
            "parts of the sequence into parts of the heads."
        ),
    ),
    "ep": Term("layout", None, N_("Expert parallelism: GPUs that share the experts of a layer, out of tp x cp x dp.")),
    "etp": Term("layout", None, N_("Expert tensor parallelism: GPUs that share each expert.")),
    "dispatcher": Term(
        "layout",
        None,
        N_(
            "How tokens reach their experts: alltoall, allgather (every rank gets every token) or deepep (a token "
            "crosses to a node once)."
        ),
    ),
    "reshard_after_forward": Term(
        "layout",
        None,
        N_("With ZeRO-3, whether weights are dropped after the forward and gathered again for the backward."),
    ),
    "offload_optimizer": Term("layout", None, N_("Where optimizer state lives: none (the GPU), cpu or nvme.")),
    "offload_parameters": Term(
        "layout", None, N_("Where the weight shards of ZeRO-3 live: none (the GPU), cpu or nvme.")
    ),
    "tp": Term("layout", None, N_("Tensor parallelism: GPUs that share each matrix.")),
    "sp": Term(
        "layout",
        None,
        N_("Sequence parallelism: the tensor-parallel GPUs also share norms and dropout along the sequence."),
    ),
    "pp": Term("layout", None, N_("Pipeline parallelism: ranks that hold successive layers.")),
    "vpp": Term(
        "layout", None, N_("Model chunks a pipeline rank holds; above one the schedule is interleaved or V-shaped.")
    ),
    "schedule": Term(
        "layout",
        None,
        N_(
            "Order of forwards and backwards in the pipeline: 1f1b, interleaved, gpipe, zb-h1, zb-v, dualpipe or "
            "dualpipev."
        ),
    ),
    "stage_split": Term(
        "layout",
        None,
        N_(
            "Layers of each pipeline stage: even, ends (embedding and head count as a layer each), or numbers "
            "such as 5-6-6-5."
        ),
    ),
    "zero_stage": Term(
        "layout",
        None,
        N_("What the replicas share out: 0 nothing, 1 the optimizer state, 2 the gradients too, 3 the weights too."),
    ),
    "micro_batch": Term("layout", None, N_("Sequences that go through the model together on one replica.")),
    "rank_order": Term(
        "layout", None, N_("Which degrees have neighbouring ranks, fastest first; the first stay inside a node.")
    ),
}
_JOB = {
    "model": Term("job", None, N_("The model that is trained: a catalog name, a config.json or a TOML file.")),
    "seq_len": Term("job", None, N_("Tokens of one sequence.")),
    "global_batch": Term("job", None, N_("Sequences of one optimizer step, over all replicas.")),
    "tokens": Term("job", None, N_("Tokens of the whole training.")),
    "precision": Term(
        "job", None, N_("Number format of matrix products; with fp8 and nvfp4 activations stay in bf16.")
    ),
    "grad_dtype": Term("job", None, N_("Number format in which gradients are accumulated and reduced.")),
    "attention": Term("job", None, N_("flash keeps no score matrix; unfused writes it to memory.")),
    "overlap_grad_reduce": Term("job", None, N_("Whether gradients are reduced while the backward still runs.")),
    "overlap_param_gather": Term(
        "job", None, N_("Whether updated weights are gathered while the next forward already runs.")
    ),
    "gradient_accumulation_fusion": Term(
        "job",
        None,
        N_("Whether weight-gradient products add into the gradient buffer themselves, not in a pass of their own."),
    ),
    "cuda_graphs": Term(
        "job", None, N_("Whether kernels are launched as one graph, so that the CPU is never the bottleneck.")
    ),
    "straggler_ratio": Term("job", None, N_("By how much the slowest rank is slower than the others.")),
    "kind": Term(
        "job",
        None,
        N_("What a step does with a sequence: pretrain, sft, dpo (a pair is two sequences), grpo or ppo."),
    ),
    "reference_forward": Term(
        "job",
        None,
        N_(
            "Whether the reference model of dpo, grpo or ppo is held and run in the step; not where its outputs are "
            "stored."
        ),
    ),
    "rollout_ratio": Term(
        "job", None, N_("Share of an iteration of grpo or ppo that goes into generating sequences; counted under data.")
    ),
    "fp8_recipe": Term(
        "job",
        None,
        N_(
            "How FP8 scales: one scale a tensor (delayed, tensorwise), a block of 128 (blockwise), a block of 32 "
            "(mxfp8)."
        ),
    ),
    "fp8_param_gather": Term("job", None, N_("Whether weights are kept and gathered in FP8 alone.")),
    "master_dtype": Term("job", None, N_("Number format of the optimizer's own copy of the weights; none: no copy.")),
    "moment_dtype": Term("job", None, N_("Number format of the optimizer's moments.")),
    "lora_rank": Term("job", None, N_("Rank of the LoRA adapters that are trained instead of the model; 0: none.")),
    "lora_targets": Term(
        "job", None, N_("What gets adapters: the projections of attention, or all linear layers but the head.")
    ),
    "frozen": Term("job", None, N_("Kinds of blocks that are not trained.")),
    "frozen_dtype": Term(
        "job", None, N_("What weights are stored in that are not trained: as the others (same), or nf4 as in QLoRA.")
    ),
    "document_len": Term(
        "job", None, N_("Mean tokens of the documents packed into a sequence; attention stays inside each.")
    ),
    "expert_load_ratio": Term("job", None, N_("Tokens of the fullest expert rank over the mean; 1 is balanced.")),
    "tp_comm_overlap": Term(
        "job", None, N_("Whether tensor-parallel transfers hide behind the products that they feed.")
    ),
}
_CLUSTER = {
    "site": Term("cluster", None, N_("What surrounds the cluster: building, storage, failures.")),
    "pue": Term("cluster", "ratio", N_("Power of the whole building over that of its computers.")),
    "storage_bytes_per_s": Term("cluster", "bytes/s", N_("What storage takes from one node while all nodes write.")),
    "restart_s": Term("cluster", "s", N_("Time from a failure until training goes on from its checkpoint.")),
    "failures_per_1000_node_days": Term(
        "cluster", None, N_("Failures that stop a job, for 1,000 servers of eight GPUs in a day.")
    ),
    "node": Term("cluster", None, N_("The kind of server; `mw catalog node` lists those that are known.")),
    "fabric": Term(
        "cluster",
        None,
        N_(
            "Assumed: number and kind of the network adapters of one server. Of a cluster: fat-tree, or rail-optimised "
            "(the n-th adapter of every server on the n-th leaf switch)."
        ),
    ),
    "gpu": Term("cluster", None, N_("The accelerator; `mw catalog gpu` lists those that are known.")),
    "nic": Term("cluster", None, N_("The network adapter; `mw catalog nic` lists those that are known.")),
    "n_nodes": Term("cluster", None, N_("Servers of the cluster.")),
    "gpus_per_node": Term("cluster", None, N_("GPUs of one server.")),
    "nics_per_node": Term("cluster", None, N_("Network adapters of one server that training traffic uses.")),
    "scale_up": Term(
        "cluster",
        None,
        N_(
            "What joins the GPUs of one server: nvswitch, hccs-switch, nvlink-mesh, xgmi-mesh, hccs-mesh, "
            "ethernet-mesh, pcie or none."
        ),
    ),
    "scale_up_domain_gpus": Term(
        "cluster",
        None,
        N_("GPUs that one set of scale-up links joins, over servers where they leave them: 72 in NVL72."),
    ),
    "oversubscription": Term(
        "cluster",
        None,
        N_("What the adapters could carry together over what the fabric's spine carries; 1 is a full fabric."),
    ),
    "host_memory_bytes": Term("cluster", "bytes", N_("Memory of one server's CPUs.")),
    "cpu_vendor": Term("cluster", None, N_("Maker of the host CPUs; decides some of the collectives' tuning.")),
}

#: What scale, fit, compare and ``explain --why-not`` answer.
_ANSWERS = {
    "verdict": Term("result", None, N_("The answer in a sentence.")),
    "points": Term("result", None, N_("The fastest layout at each number of GPUs, ascending.")),
    "weak": Term("result", None, N_("Whether the batch grows with the GPUs (weak scaling) or stays (strong scaling).")),
    "tokens_per_s": Term("result", "1/s", N_("Tokens of one step over the step time: the speed of all GPUs together.")),
    "efficiency_ratio": Term(
        "result",
        None,
        N_(
            "Scaling efficiency: tokens/s/GPU over that of the smallest number of GPUs that fits; above one where "
            "that one has no room for its fastest layouts."
        ),
    ),
    "least_efficiency_ratio": Term("result", None, N_("The efficiency down to which more GPUs are said to pay off.")),
    "knee_n_gpus": Term(
        "result", None, N_("The largest number of GPUs up to which the efficiency stays at least_efficiency_ratio.")
    ),
    "no_faster_n_gpus": Term(
        "result", None, N_("The first number of GPUs that gives no more tokens/s than the one before it.")
    ),
    "why_none": Term("result", None, N_("Why nothing fits, in words.")),
    "median_interval_s": Term(
        "result", "s", N_("The 80 % interval of the median time with failures, from that of the step.")
    ),
    "gpu_hours": Term("result", "h", N_("GPUs times the median time of the training with failures.")),
    "cost_range_usd": Term(
        "result", "USD", N_("cost_usd at the lowest and the highest price of that tier in the catalog.")
    ),
    "fastest": Term("result", None, N_("The fastest layout that fits; of a comparison the fastest cluster, from 0.")),
    "least_memory": Term("result", None, N_("The legal layout with the lowest peak memory.")),
    "micro_batches": Term("result", None, N_("The largest micro-batches of the fastest and of the smallest layouts.")),
    "largest_micro_batch": Term(
        "result",
        None,
        N_(
            "The most sequences of a micro-batch that fit with room to spare; the batch of a step grows with it, the "
            "number of micro-batches stays."
        ),
    ),
    "dividing_micro_batch": Term(
        "result", None, N_("The largest micro-batch that fits and divides the given global batch.")
    ),
    "limits": Term("result", None, N_("The most of each thing that fits with room to spare, and the fewest GPUs.")),
    "longest_sequence": Term("result", None, N_("The longest sequence for which a layout fits, in tokens.")),
    "largest_model": Term("result", None, N_("The largest model of the same family in the catalog that fits.")),
    "fewest_gpus": Term("result", None, N_("The fewest GPUs of this kind that hold the job.")),
    "at_end": Term("result", None, N_("The range that was tried ends there, not what fits.")),
    "candidates": Term("result", None, N_("The clusters of a comparison.")),
    "as_given": Term("result", None, N_("A cluster as it was named, with its fastest layout.")),
    "needed": Term("result", None, N_("The fewest whole nodes of this kind that meet the deadline in the median.")),
    "needed_why_none": Term("result", None, N_("Why no number of these GPUs meets the deadline.")),
    "meets_deadline": Term(
        "result",
        None,
        N_(
            "yes: the whole interval lies within the deadline; likely: the prediction does; unlikely: only the good "
            "end does; no: nothing does."
        ),
    ),
    "meets_budget": Term("result", None, N_("As meets_deadline, for the cost and the budget.")),
    "deadline_s": Term("result", "s", N_("The time that the training may take.")),
    "budget_usd": Term("result", "USD", N_("What the training may cost.")),
    "fastest_is_clear": Term(
        "result", None, N_("Whether the fastest cluster leads the next by more than both intervals allow.")
    ),
    "cheapest": Term("result", None, N_("The cheapest cluster as given, from 0.")),
    "cheapest_is_clear": Term(
        "result",
        None,
        N_("Whether the cheapest leads by more than the intervals and by more than providers differ in price."),
    ),
    "cheapest_needed": Term("result", None, N_("The cheapest of those that meet the deadline, from 0.")),
    "holds": Term("result", None, N_("Whether a cluster does what was asked for: fits, in time, within the budget.")),
    "asked": Term("result", None, N_("The part of a layout that --why-not asks about.")),
    "outcome": Term(
        "result", None, N_("How the layouts that were asked about fare: illegal, memory, slower, faster or chosen.")
    ),
    "other": Term("result", None, N_("The best layout among those asked about, or the one that comes nearest.")),
    "rule": Term("result", None, N_("The rule that most of the layouts break.")),
    "rule_text": Term("result", None, N_("What the rule demands.")),
    "rule_values": Term("result", None, N_("The sizes that the rule speaks of.")),
    "largest_class": Term("result", None, N_("The class of memory that takes most where a layout does not fit.")),
}

#: Every name but error codes. ``optimizer`` and ``recompute`` name a term here; their other meanings are below.
GLOSSARY: Mapping[str, Term] = _RESULTS | _ANSWERS | _PHASES | _MEMORY | _LAYOUT | _JOB | _CLUSTER | _TERMS
#: A name that means something else inside ``memory.by`` or ``layout``.
MEMORY_TERMS: Mapping[str, Term] = _MEMORY
LAYOUT_TERMS: Mapping[str, Term] = {name: term for name, term in _LAYOUT.items() if term.kind == "layout"} | {
    "recompute": Term(
        "layout",
        None,
        N_(
            "What the backward computes again instead of keeping it: none, selective (the attention core), full "
            "(whole layers), or modules joined with +."
        ),
    ),
}

#: A job's field whose name means something else elsewhere.
JOB_TERMS: Mapping[str, Term] = _JOB | {
    "optimizer": Term(
        "job", None, N_("The optimizer that trains the model: adam, unfused_adam, adam_8bit, sgd, adafactor or muon.")
    ),
}
#: Words that stand in the pages and name no field: values of columns and of ``fits``.
WORDS: Mapping[str, Term] = {
    "yes": Term(
        "word", None, N_("Under fits: the reserved peak plus a margin of 4 % fits the GPU. Else: switched on.")
    ),
    "tight": Term(
        "word",
        None,
        N_(
            "Under fits: only the allocated peak fits, the reserved one with its margin does not; the run may run out "
            "of memory through fragmentation."
        ),
    ),
    "no": Term("word", None, N_("Under fits: the allocated peak exceeds the memory of the GPU.")),
    "none": Term("word", None, N_("recompute=none keeps every activation; scale_up=none: GPUs have no link.")),
    "selective": Term(
        "word", None, N_("recompute=selective: the backward computes the attention core again, nothing else.")
    ),
    "select": Term("word", None, N_("selective, shortened for the table.")),
    "full": Term(
        "word", None, N_("recompute=full: only the input of each layer is kept, the backward computes it all again.")
    ),
    "norm": Term("word", None, N_("recompute=norm: the backward computes the normalisations again.")),
    "mlp": Term("word", None, N_("recompute=mlp: the backward computes the MLP again.")),
    "1f1b": Term(
        "word", None, N_("schedule=1f1b: after the pipeline is filled, each rank does one forward, one backward.")
    ),
    "interleaved": Term(
        "word", None, N_("schedule=interleaved: each rank holds vpp chunks of the model, which shrinks the bubble.")
    ),
    "dp-pp": Term("word", None, N_("rank_order=tp-cp-dp-pp, shortened for the table.")),
    "pp-dp": Term("word", None, N_("rank_order=tp-cp-pp-dp, shortened for the table.")),
    "even": Term("word", None, N_("stage_split=even: every pipeline stage gets the same number of layers, or nearly.")),
    "ends": Term(
        "word", None, N_("stage_split=ends: embedding and head count as a layer each, so the end stages get fewer.")
    ),
    "free": Term("word", "bytes", N_("Memory of the GPU beyond the reserved peak.")),
    "flash": Term("word", None, N_("attention=flash: a fused kernel that never writes the score matrix.")),
    "unfused": Term("word", None, N_("attention=unfused: the score matrix is written to memory and read back.")),
    "gpipe": Term("word", None, N_("schedule=gpipe: every forward, then every backward; all activations are held.")),
    "zb-h1": Term(
        "word",
        None,
        N_("schedule=zb-h1: 1F1B with weight gradients apart, done late; a smaller bubble in the same memory."),
    ),
    "zb-v": Term(
        "word",
        None,
        N_("schedule=zb-v: two chunks a rank, down the ranks and up again, with weight gradients apart (zero bubble)."),
    ),
    "dualpipe": Term(
        "word",
        None,
        N_("schedule=dualpipe: micro-batches enter at both ends, each rank holds two stages; communication hides."),
    ),
    "dualpipev": Term(
        "word",
        None,
        N_("schedule=dualpipev: DualPipe on half of the ranks, two chunks each placed as a V; parameters held once."),
    ),
}
#: What the pages print instead of a name: header or label -> the name.
PRINTED: Mapping[str, str] = {
    "#": "layouts",
    "mb": "micro_batch",
    "recomp": "recompute",
    "zero": "zero_stage",
    "sched": "schedule",
    "repl": "dp_replicate",
    "reshard": "reshard_after_forward",
    "off.opt": "offload_optimizer",
    "off.par": "offload_parameters",
    "dispatch": "dispatcher",
    "cp by": "cp_kind",
    "split": "stage_split",
    "order": "rank_order",
    "step": "step_time_s",
    "80%": "step_time_interval_s",
    "tokens/s": "tokens_per_s_per_gpu",
    "tokens/s/GPU": "tokens_per_s_per_gpu",
    "MFU": "mfu_ratio",
    "HFU": "hfu_ratio",
    "memory": "peak_reserved_bytes",
    "misses": "misses_bytes",
    "slower": "slower_ratio",
    "ZeRO": "zero_stage",
    "reserve": "peak_reserved_bytes",
    "spare": "free",
}

#: Error codes: what each means; the message itself says what was wrong and what is nearest.
ERRORS: Mapping[str, str] = {
    "MW-E100": N_("There is no such command."),
    "MW-E101": N_("An option does not exist."),
    "MW-E102": N_("An argument or an option's value is missing."),
    "MW-E103": N_("An option has a value that it does not take."),
    "MW-E104": N_("A flag was given more than once."),
    "MW-E105": N_("A word on the command line belongs to no option."),
    "MW-E106": N_("Meshwright does not speak this language."),
    "MW-E110": N_("A text is not a number with a unit."),
    "MW-E111": N_("A number has no unit where one is needed."),
    "MW-E112": N_("The unit is not one of this kind of quantity."),
    "MW-E113": N_("A quantity is negative or not finite."),
    "MW-E120": N_("The sequence is longer than the model's learned positions."),
    "MW-E121": N_("The sequences of a DPO step are no whole pairs."),
    "MW-E122": N_("A storage format for frozen weights was chosen, and none are frozen."),
    "MW-E130": N_("A layout names a column that does not exist."),
    "MW-E131": N_("A part of a layout is not key=value."),
    "MW-E132": N_("A value of a layout is not what its column takes."),
    "MW-E133": N_("There is no such ZeRO stage."),
    "MW-E134": N_("A module cannot be recomputed."),
    "MW-E140": N_("What is fixed leaves no way to use all GPUs."),
    "MW-E150": N_("A change is not path=value."),
    "MW-E151": N_("A change names something that cannot be set."),
    "MW-E152": N_("A change has a value that its field does not take."),
    "MW-E160": N_("A pipeline schedule does not exist."),
    "MW-E161": N_("A schedule cannot run this number of micro-batches, ranks and chunks."),
    "MW-E162": N_("An order of forwards and backwards waits for itself."),
    "MW-E201": N_("A name is not in the catalog."),
    "MW-E202": N_("A kind of catalog entry does not exist."),
    "MW-E203": N_("A catalog file cannot be read."),
    "MW-E204": N_("A catalog value has no source or no label."),
    "MW-E205": N_("A catalog file has a field that is unknown or wrong."),
    "MW-E206": N_("A catalog file lacks fields."),
    "MW-E207": N_("A peak counts 2:4 sparsity; only dense peaks are stored."),
    "MW-E208": N_("A size of a model is not a whole number above zero, or is too large."),
    "MW-E209": N_("Sizes of a model do not divide each other."),
    "MW-E210": N_("A text does not describe a cluster."),
    "MW-E211": N_("The GPUs are no whole number of nodes."),
    "MW-E212": N_("The GPUs do not fit the nodes."),
    "MW-E213": N_("A network is not understood."),
    "MW-E214": N_("An oversubscription is less than 1:1 or absurdly large."),
    "MW-E215": N_("A count of a cluster is not a whole number above zero, or is too large."),
    "MW-E216": N_("A cluster file is missing or has wrong fields."),
    "MW-E217": N_("A scale-up domain is no whole number of nodes."),
    "MW-E220": N_("A model file does not exist or cannot be read."),
    "MW-E221": N_("A directory holds no config.json."),
    "MW-E222": N_("A model file is empty."),
    "MW-E223": N_("A model file is not JSON."),
    "MW-E224": N_("A model file holds something else than fields."),
    "MW-E225": N_("The architecture of a model is not known."),
    "MW-E226": N_("A model has a part that cannot be described."),
    "MW-E227": N_("A model file is not a text."),
    "MW-E228": N_("This kind of file is not read as a model."),
    "MW-E230": N_("The catalog has no such price for this GPU."),
    "MW-E301": N_("A model names a kind of block that does not exist."),
    "MW-E302": N_("A file of MESHWRIGHT_PATH fails while it is loaded."),
    "MW-E310": N_("A collective does not exist."),
    "MW-E390": N_("Fitting needs the extra fit."),
    "MW-E401": N_("No model was given."),
    "MW-E402": N_("No cluster was given."),
    "MW-E403": N_("A count is below one or too large."),
    "MW-E404": N_("A choice is not modelled."),
    "MW-E405": N_("The GPU does not have what was chosen."),
    "MW-E406": N_("The layout uses another number of GPUs than the cluster has."),
    "MW-E407": N_("The layout, or what is fixed of it, breaks a rule."),
    "MW-E408": N_("No layout was given."),
    "MW-E410": N_("A file does not exist or cannot be read."),
    "MW-E411": N_("A file was expected, this is a directory."),
    "MW-E412": N_("A file is empty."),
    "MW-E413": N_("A file is not a plan."),
    "MW-E414": N_("The plan has no layout of that number."),
    "MW-E415": N_("A flag contradicts the plan file, which already says it."),
    "MW-E416": N_("A file or the standard output cannot be written."),
    "MW-E417": N_("One file is named for two outputs."),
    "MW-E420": N_("A name is neither a result, a term, a rule, a formula nor an error."),
    "MW-E421": N_("The plan has no such number."),
    "MW-E430": N_("There is no such kind of measured file."),
    "MW-E431": N_("A measured file lacks columns or holds no rows."),
    "MW-E440": N_("A deadline or a budget needs the tokens of a training."),
    "MW-E441": N_("A budget needs a price of the GPU."),
    "MW-E450": N_("A text is neither a number of GPUs nor a range of them."),
    "MW-E451": N_("A deadline or a budget of nothing."),
    "MW-E452": N_("A price is for a GPU that no cluster has."),
}
