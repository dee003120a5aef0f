#!/usr/bin/env python3
"""Hold our decoding against T5X's, Hugging Face's and CTranslate2's: same weights, same texts.

Needs torch, transformers and ctranslate2, which nothing else here does; bench_peers.sh makes an
environment of its own for them. All ways run in turns in one process, on as many threads as there
are cores.
"""

import argparse
import dataclasses
import os
import sys
import tempfile
from pathlib import Path

import ctranslate2
import numpy as np
import torch

# By name: PyTorch's compiler has to be loaded before T5X's TensorFlow is, and crashes after it.
from transformers import (
    AutoTokenizer,
    LogitsProcessor,
    LogitsProcessorList,
    T5ForConditionalGeneration,
)

from specdec_jax import checkpoints
from specdec_jax.checkpoints import bundle
from specdec_jax.checkpoints.convert import convert
from specdec_jax.errors import SpecdecError, told
from specdec_jax.t5 import T5
from specdec_jax.t5.expand import expand
from specdec_jax.t5x_plugin import side_by_side


def hugging_face(folder: Path, model: T5, vocabulary: Path) -> Path:
    """Write a model as Hugging Face reads it."""
    own, theirs = folder / "own", folder / "hf"
    bundle.save(own, model, dtype="float32", vocabulary=vocabulary)
    convert(own, theirs, format="hf", dtype="float32")
    return theirs


class Used(LogitsProcessor):
    """Hides the ids beyond the vocabulary: padding of the embedding, whose logits are 0."""

    def __init__(self, size: int):
        self.size = size

    def __call__(self, input_ids, scores):
        """Mask scores [B, V] in place."""
        scores[:, self.size :] = -torch.inf
        return scores


def torch_ways(target: Path, draft: Path, used: int, settings) -> dict[str, side_by_side.Decoder]:
    """Return `generate` of Hugging Face, plain and, for one row at a time, assisted."""
    load = T5ForConditionalGeneration.from_pretrained
    model, assistant = load(target).eval(), load(draft).eval()
    assistant.generation_config.num_assistant_tokens = settings.gamma
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    assistant.generation_config.assistant_confidence_threshold = 0.0
    options = {
        "max_new_tokens": settings.max_tokens,
        "do_sample": settings.temperature > 0,
        "top_k": 0,
        "num_beams": 1,
        "logits_processor": LogitsProcessorList([Used(used)]),
    }
    if settings.temperature:
        options["temperature"] = settings.temperature

    def generate(batch: np.ndarray, **more):
        ids = torch.from_numpy(np.array(batch, np.int64))
        with torch.inference_mode():
            found = model.generate(ids, attention_mask=(ids > 0).long(), **options, **more)
        return found[:, 1:].numpy()

    ways: dict[str, side_by_side.Decoder] = {"hf": generate}
    if settings.batch_size == 1:
        ways["hf_assisted"] = lambda batch: generate(batch, assistant_model=assistant)
    return ways


def ctranslate2_way(folder: Path, settings) -> side_by_side.Decoder:
    """Return CTranslate2's greedy decoding in float32."""
    out = folder.parent / "ct2"
    ctranslate2.converters.TransformersConverter(str(folder)).convert(str(out))
    translator = ctranslate2.Translator(
        str(out), compute_type="float32", intra_threads=os.cpu_count() or 1
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def translate(batch: np.ndarray):
        found = translator.translate_batch(
            [tokenizer.convert_ids_to_tokens(row[row > 0].tolist()) for row in np.asarray(batch)],
            beam_size=1,
            max_decoding_length=settings.max_tokens,
            return_end_token=True,
        )
        rows = [tokenizer.convert_tokens_to_ids(each.hypotheses[0]) for each in found]
        padded = np.zeros((len(rows), settings.max_tokens), np.int32)
        for row, ids in zip(padded, rows, strict=True):
            row[: len(ids)] = ids
        return padded

    return translate


@told
def main() -> int:
    """Measure, print and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    side_by_side.add_flags(parser)
    flags = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as work:

        def others(target: T5, settings):
            if target.config.num_decoder_layers > target.config.num_encoder_layers:
                raise SpecdecError(
                    "transformers lays out a cache for as many layers as the encoder has, and this "
                    "target's decoder has more: give --shape base or large."
                )
            kept = checkpoints.load(flags.draft)
            vocabulary = kept.vocabulary_path
            assert vocabulary is not None
            # Hugging Face asks for embeddings of equal size.
            sizes = dataclasses.replace(kept.model.config, vocab_size=target.config.vocab_size)
            draft = expand(kept.model, sizes)
            theirs = hugging_face(Path(work) / "target", target, vocabulary)
            guesser = hugging_face(Path(work) / "draft", draft, vocabulary)
            ways = {"t5x": side_by_side.stock_decoder(target, settings)}
            ways |= torch_ways(theirs, guesser, target.vocab_size, settings)
            if settings.temperature == 0:
                ways["ctranslate2"] = ctranslate2_way(theirs, settings)
            return ways

        return side_by_side.compared(flags, others)


if __name__ == "__main__":
    sys.exit(main())
