"""Make a tiny Llama of random weights, with tokenizer, chat template and a LoRA adapter.

Run: python tests/integrations/vllm/tiny_model.py DIRECTORY (with the packages of vLLM; seconds, no network). The model
is written to DIRECTORY/tiny, the adapter to DIRECTORY/adapter.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

LAYERS, HIDDEN, INNER, HEADS, VOCABULARY, RANK = 2, 64, 128, 2, 512, 8
SPECIAL = ("<|pad|>", "<|bos|>", "<|eos|>", "<|turn|>", "<|end|>")
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HIDDEN // HEADS,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CHAT_TEMPLATE = (
    "{% for message in messages %}<|turn|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
ADAPTER = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": RANK, "target_modules": ["q_proj"]}


def main() -> None:
    """Write model and adapter."""
    random = np.random.default_rng(0)
    place = Path(sys.argv[1])
    model, adapter = place / "tiny", place / "adapter"
    for directory in (model, adapter):
        directory.mkdir(parents=True, exist_ok=True)
    made = tokenizer()
    save_file(weights(random, unwritten(made)), model / "model.safetensors", metadata={"format": "pt"})
    write(model / "config.json", CONFIG)
    write(model / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})
    made.save(str(model / "tokenizer.json"))
    names = {"pad_token": SPECIAL[0], "bos_token": SPECIAL[1], "eos_token": SPECIAL[2]}
    own = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT_TEMPLATE}
    write(model / "tokenizer_config.json", {**names, **own, "additional_special_tokens": SPECIAL[3:]})
    write(adapter / "adapter_config.json", ADAPTER)
    save_file(adapter_weights(random), adapter / "adapter_model.safetensors")


def unwritten(made: Tokenizer) -> list[int]:
    """Return the tokens that the model reads and never writes: an answer has text in each of its events."""
    texts = [made.decode([token]) for token in range(VOCABULARY)]
    return [token for token, text in enumerate(texts) if not (text and text.isascii())]


def weights(random: np.random.Generator, never: list[int]) -> dict[str, Any]:
    """Return every tensor by its name; the tokens ``never`` have no chance."""
    embedded, head = matrix(random, VOCABULARY, HIDDEN), matrix(random, VOCABULARY, HIDDEN)
    # The first number of each token is the same and large, so that the head can lower a token whatever went before it.
    embedded[:, 0], head[:, 0], head[never, 0] = 0.2, 0, -20
    # It may end a tool call, and seldom ends a text.
    head[CONFIG["eos_token_id"], 0] = -0.25
    found = {"model.embed_tokens.weight": embedded, "lm_head.weight": head, "model.norm.weight": ones()}
    for layer in (f"model.layers.{number}" for number in range(LAYERS)):
        found |= {f"{layer}.self_attn.{name}_proj.weight": matrix(random, HIDDEN, HIDDEN) for name in "qkvo"}
        found |= {f"{layer}.mlp.{name}_proj.weight": matrix(random, INNER, HIDDEN) for name in ("gate", "up")}
        found[f"{layer}.mlp.down_proj.weight"] = matrix(random, HIDDEN, INNER)
        found |= {f"{layer}.{name}_layernorm.weight": ones() for name in ("input", "post_attention")}
    return found


def adapter_weights(random: np.random.Generator) -> dict[str, Any]:
    """Return the two factors of each layer's change."""
    layers = [f"base_model.model.model.layers.{number}.self_attn.q_proj" for number in range(LAYERS)]
    factors = {"lora_A": (RANK, HIDDEN), "lora_B": (HIDDEN, RANK)}
    return {f"{layer}.{name}.weight": matrix(random, *shape) for layer in layers for name, shape in factors.items()}


def matrix(random: np.random.Generator, *shape: int) -> Any:
    """Return small random numbers."""
    return random.normal(0, 0.02, shape).astype(np.float16)


def ones() -> Any:
    """Return the weights of a norm that changes nothing."""
    return np.ones(HIDDEN, dtype=np.float16)


def tokenizer() -> Tokenizer:
    """Return a byte-level tokenizer, which knows every text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), show_progress=False, initial_alphabet=alphabet
    )
    made.train_from_iterator(["hello world, tell me a story of a request that was logged on its way"] * 10, trainer)
    return made


def write(path: Path, content: object) -> None:
    """Write JSON."""
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
