#!/usr/bin/env python3
"""Make tests/golden: seeded tiny T5s of each family, and what Hugging Face computes with them.

Needs torch and transformers, which nothing else here does; in an environment of its own:

    pip install torch==2.13.0 transformers==5.24.0
    python scripts/make_golden.py tests/golden

LM-adapted T5 and Flan-T5 are T5 1.1 with other values. Afterwards, make_golden_t5x.py adds what
T5X computes.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
import torch
from transformers import (
    MT5Config,
    MT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

SIZES = {
    "vocab_size": 64,
    "d_model": 16,
    "d_kv": 4,
    "d_ff": 24,
    "num_heads": 3,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
}
T5 = (T5Config, T5ForConditionalGeneration)
MT5 = (MT5Config, MT5ForConditionalGeneration)
UMT5 = (UMT5Config, UMT5ForConditionalGeneration)
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
FAMILIES = {
    "t5_1_0": (T5, {}),
    "t5_1_1": (T5, GATED),
    "t5_1_1_tied_head": (T5, GATED),
    "mt5": (MT5, GATED),
    "byt5": (T5, {**GATED, "vocab_size": 384, "num_layers": 3, "num_decoder_layers": 1}),
    "umt5": (UMT5, GATED),
}
SEEDS = {"umt5": 10}  # its greedy ids vary, and one row ends
ROWS, SOURCE, STEPS = 4, 40, 24


def fill(model, generator, untied):
    """Give every parameter values at which attention, gates and logits are far from trivial."""
    with torch.no_grad():
        if untied:
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
        for name, weight in model.named_parameters():
            weight.normal_(generator=generator)
            if weight.dim() == 1:
                weight.mul_(0.2).add_(1.0)
            elif "relative" not in name and "shared" not in name:
                # Queries as small as T5's, whose scores have no 1/sqrt(d).
                weight.mul_(weight.shape[1] ** -0.5 * (0.5 if ".q." in name else 1.2))


def make(folder, name, seed):
    """Save one model, load it again as users do, and record logits and greedy ids."""
    (config_of, model_of), fields = FAMILIES[name]
    generator = torch.Generator().manual_seed(seed)
    model = model_of(config_of(**{**SIZES, **fields}))
    untied = "tie_word_embeddings" in fields and "tied_head" not in name
    fill(model, generator, untied)
    if untied:
        model.config.tie_word_embeddings = False
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size="20KB" if name == "mt5" else "5GB")
    model = model_of.from_pretrained(folder).eval()
    vocab = model.config.vocab_size
    source = torch.randint(3, vocab, (ROWS, SOURCE), generator=generator)
    for row, length in enumerate((SOURCE, 17, 2, 9)):
        source[row, length:] = 0
    start = torch.zeros((ROWS, 1), dtype=torch.long)
    given = torch.cat([start, torch.randint(2, vocab, (ROWS, STEPS - 1), generator=generator)], 1)
    mask = (source > 0).long()
    with torch.no_grad():
        logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=given).logits
        # No cache: transformers sizes it by the encoder, and here the decoder is deeper.
        plain = {"do_sample": False, "num_beams": 1, "use_cache": False}
        greedy = model.generate(source, attention_mask=mask, max_new_tokens=STEPS, **plain)
    arrays = {"source": source, "decoder_input": given, "logits": logits, "greedy": greedy[:, 1:]}
    types = {"logits": np.float32}
    arrays = {k: v.numpy().astype(types.get(k, np.int32)) for k, v in arrays.items()}
    np.savez_compressed(folder / "expected.npz", **arrays)
    print(name, "greedy tokens", len(np.unique(arrays["greedy"])), arrays["greedy"].shape)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    for number, family in enumerate(FAMILIES):
        make(out / family, family, SEEDS.get(family, number))
