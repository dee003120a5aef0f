"""T5X's InteractiveModel restores one path: a merged checkpoint."""

import dataclasses

import numpy as np
import pytest
import seqio
import tiny
from t5x import decoding as stock
from t5x import models as stock_models
from t5x import partitioning
from t5x.interactive_model import InteractiveModel

from specdec_jax.checkpoints import load
from specdec_jax.checkpoints.bundle import save
from specdec_jax.t5.model import t5
from specdec_jax.t5x_plugin import merge
from specdec_jax.t5x_plugin.models import DRAFT, SpeculativeEncoderDecoderModel
from specdec_jax.t5x_plugin.network import Transformer

VOCABULARY = seqio.ByteVocabulary(extra_ids=125)
CONFIG = dataclasses.replace(tiny.CONFIG, vocab_size=384)
LENGTHS = {"inputs": 16, "targets": 16}
TEXTS = ["one", "twenty two", "three hundred"]


def interactive(model, checkpoint, folder):
    return InteractiveModel(
        batch_size=4,
        task_feature_lengths=LENGTHS,
        output_dir=str(folder),
        partitioner=partitioning.PjitPartitioner(num_partitions=1),
        model=model,
        dtype="float32",
        restore_mode="specific",
        checkpoint_path=str(checkpoint),
        input_shapes={"encoder_input_tokens": (4, 16), "decoder_input_tokens": (4, 16)},
    )


@pytest.fixture
def saved(tmp_path):
    """Return the folders of a target, a draft, and both merged."""
    target = tiny.params(CONFIG)
    for name, params in (("target", target), ("draft", tiny.noisy(target))):
        save(tmp_path / name, t5(params, CONFIG), dtype="float32")
    merged = tmp_path / "merged/checkpoint_3"
    said = merge.main([str(tmp_path / "target"), str(tmp_path / "draft"), str(merged)])
    assert said == 0
    return tmp_path


def test_a_merged_checkpoint_decodes_as_the_target_does(saved):
    stock_model = stock_models.EncoderDecoderModel(
        Transformer(CONFIG), VOCABULARY, VOCABULARY, None, decode_fn=stock.temperature_sample
    )
    ours = SpeculativeEncoderDecoderModel(
        Transformer(CONFIG), Transformer(CONFIG), VOCABULARY, VOCABULARY, gamma=2
    )
    merged = saved / "merged/checkpoint_3"
    # T5X ignores what it does not ask for; its default of topk is greedy.
    target = saved / "alone/checkpoint_3"
    merge.t5x_legacy.write(target, merge.open_checkpoint(saved / "target"), dtype="float32")
    plain, _ = interactive(stock_model, target, saved / "out_plain").predict_with_aux(TEXTS)
    model = interactive(ours, merged, saved / "out")
    found, aux = model.predict_with_aux(TEXTS)
    assert [text for _, text in found] == [text for _, text in plain]
    assert len({text for _, text in found}) == len(TEXTS)
    assert sum(aux["accepted"]) > 0
    draft = load(saved / "draft").model.params
    np.testing.assert_array_equal(
        model.train_state.params[DRAFT]["token_embedder"]["embedding"],
        draft["token_embedder"]["embedding"],
    )


def test_merge_says_what_is_wrong(saved, capsys):
    command = [str(saved / "target"), str(saved / "nothing"), str(saved / "new/checkpoint_1")]
    assert merge.main(command) == 2
    assert "No checkpoint at" in capsys.readouterr().err
    merged = str(saved / "merged/checkpoint_3")
    assert merge.main([merged, str(saved / "draft"), str(saved / "new/checkpoint_1")]) == 2
    assert "has a draft already" in capsys.readouterr().err
