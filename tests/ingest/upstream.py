"""The fields that decide a model's size, as the published ``config.json`` files on the Hugging Face hub have them."""

from __future__ import annotations

from typing import Any

GPT2: dict[str, Any] = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "embd_pdrop": 0.1,
    "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768,
    "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "vocab_size": 50257,
}
OPT_125M: dict[str, Any] = {
    "activation_function": "relu", "architectures": ["OPTForCausalLM"], "attention_dropout": 0.0,
    "do_layer_norm_before": True, "dropout": 0.1, "ffn_dim": 3072, "hidden_size": 768, "layerdrop": 0.0,
    "max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 12, "num_hidden_layers": 12,
    "vocab_size": 50272, "word_embed_proj_dim": 768,
}
BLOOM: dict[str, Any] = {
    "architectures": ["BloomForCausalLM"], "attention_dropout": 0.0, "attention_softmax_in_fp32": True,
    "hidden_dropout": 0.0, "masked_softmax_fusion": True, "model_type": "bloom", "n_embed": 14336, "n_layer": 70,
    "num_attention_heads": 112, "pretraining_tp": 4, "slow_but_exact": False, "vocab_size": 250880,
}
BLOOM_560M: dict[str, Any] = {
    "architectures": ["BloomForCausalLM"], "attention_dropout": 0.0, "hidden_dropout": 0.0, "hidden_size": 1024,
    "model_type": "bloom", "n_head": 16, "n_inner": None, "n_layer": 24, "offset_alibi": 100, "seq_length": 2048,
    "vocab_size": 250880,
}
LLAMA_2_7B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008,
    "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": None,
    "tie_word_embeddings": False, "torch_dtype": "float16", "use_cache": True, "vocab_size": 32000,
}
LLAMA_2_13B = LLAMA_2_7B | {
    "hidden_size": 5120, "intermediate_size": 13824, "num_attention_heads": 40, "num_hidden_layers": 40,
    "num_key_value_heads": 40,
}
LLAMA_2_70B = LLAMA_2_7B | {
    "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_hidden_layers": 80,
    "num_key_value_heads": 8,
}
LLAMA_3_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "hidden_act": "silu",
    "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 8192, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rope_theta": 500000.0,
    "tie_word_embeddings": False, "vocab_size": 128256,
}
LLAMA_3_70B = LLAMA_3_8B | {
    "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_hidden_layers": 80,
}
LLAMA_31_405B = LLAMA_3_8B | {
    "hidden_size": 16384, "intermediate_size": 53248, "max_position_embeddings": 131072, "mlp_bias": False,
    "num_attention_heads": 128, "num_hidden_layers": 126,
    "rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
}
MISTRAL_7B: dict[str, Any] = {
    "architectures": ["MistralForCausalLM"], "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": False,
    "vocab_size": 32000,
}
QWEN25_7B: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 3584,
    "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28, "model_type": "qwen2",
    "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "sliding_window": 131072,
    "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 152064,
}
QWEN25_05B = QWEN25_7B | {
    "hidden_size": 896, "intermediate_size": 4864, "max_position_embeddings": 32768, "num_attention_heads": 14,
    "num_hidden_layers": 24, "num_key_value_heads": 2, "tie_word_embeddings": True, "vocab_size": 151936,
}
QWEN25_72B = QWEN25_7B | {
    "hidden_size": 8192, "intermediate_size": 29568, "num_attention_heads": 64, "num_hidden_layers": 80,
    "num_key_value_heads": 8,
}

#: catalog name -> config.json and the parameter count published for it, to the last digit
MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "GPT-2": (GPT2, 124_439_808),
    "GPT-2-XL": (GPT2 | {"n_embd": 1600, "n_head": 25, "n_layer": 48}, 1_557_611_200),
    "OPT-125m": (OPT_125M, 125_239_296),
    "BLOOM-176B": (BLOOM, 176_247_271_424),
    "BLOOM-560m": (BLOOM_560M, 559_214_592),
    "Llama-2-7B": (LLAMA_2_7B, 6_738_415_616),
    "Llama-2-13B": (LLAMA_2_13B, 13_015_864_320),
    "Llama-2-70B": (LLAMA_2_70B, 68_976_648_192),
    "Llama-3-8B": (LLAMA_3_8B, 8_030_261_248),
    "Llama-3-70B": (LLAMA_3_70B, 70_553_706_496),
    "Llama-3.1-405B": (LLAMA_31_405B, 405_853_388_800),
    "Mistral-7B-v0.1": (MISTRAL_7B, 7_241_732_096),
    "Qwen2.5-0.5B": (QWEN25_05B, 494_032_768),
    "Qwen2.5-7B": (QWEN25_7B, 7_615_616_512),
    "Qwen2.5-72B": (QWEN25_72B, 72_706_203_648),
}
