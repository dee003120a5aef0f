#!/usr/bin/env python3
"""Add to tests/golden what T5X's stock networks compute with the models of make_golden.py.

Needs T5X and, because its wheel leaves them out, a checkout for the networks among its examples:

    git clone https://github.com/google-research/t5x
    python scripts/make_golden_t5x.py t5x tests/golden

Each folder gets expected_t5x.npz: logits of ``t5x/examples/t5`` (umT5: of ``scalable_t5``), and the
greedy ids of T5X's ``temperature_sample`` on it. Two also get scanned/checkpoint_0: the weights as
T5X's Orbax manager saves a ``scalable_t5`` with scanned layers.
"""

import argparse
import dataclasses
import functools
import importlib
import shutil
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import seqio
import t5x
from flax import core, traverse_util
from t5x import checkpoints as t5x_checkpoints
from t5x import decoding, models, partitioning, train_state

from specdec_jax import checkpoints

SCANNED = ("t5_1_1", "umt5")


class Reference:
    """One of T5X's networks, with T5X's model class around it."""

    def __init__(self, kind, config, **fields):
        network = importlib.import_module(f"t5x.examples.{kind}.network")
        known = {f.name for f in dataclasses.fields(network.T5Config)}
        ours = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
        shared = {k: v for k, v in ours.items() if k in known}
        self.module = network.Transformer(network.T5Config(**shared, **fields))
        vocabulary = seqio.PassThroughVocabulary(config.vocab_size, eos_id=1)
        self.model = models.EncoderDecoderModel(
            self.module, vocabulary, vocabulary, None, decode_fn=decoding.temperature_sample
        )

    @functools.cached_property
    def variables(self):
        """Shapes of the parameters and their axes."""
        shapes = {"encoder_input_tokens": (1, 4), "decoder_input_tokens": (1, 4)}
        make = functools.partial(self.model.get_initial_variables, input_shapes=shapes)
        return jax.eval_shape(make, jax.random.key(0))

    def logits(self, params, source, given):
        """Run a teacher-forced pass; every position of the target is taken to be real."""
        run = jax.jit(functools.partial(self.module.apply, enable_dropout=False))
        return run({"params": params}, source, given, jnp.ones_like(given))

    def greedy(self, params, source, count):
        """Decode; T5X's defaults are greedy."""
        tokens = jnp.zeros((len(source), count), jnp.int32)
        batch = {"encoder_input_tokens": source, "decoder_input_tokens": tokens}
        return jax.jit(self.model.predict_batch)(params, batch, jax.random.key(0))

    def params(self, ours):
        """Lay parameters out as this network has them: heads apart, layers stacked."""
        wanted = traverse_util.flatten_dict(core.unfreeze(self.variables["params"]), sep="/")
        flat = traverse_util.flatten_dict(ours, sep="/")
        made = {name: _leaf(name, leaf.shape, flat) for name, leaf in wanted.items()}
        return traverse_util.unflatten_dict(made, sep="/")

    def save(self, params, folder, writer):
        """Save step 0 as T5X does that has trained this network."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        state = train_state.InferenceState.create(
            core.freeze({**self.variables, "params": params})
        ).replace(step=np.int32(0))
        partitioner = partitioning.PjitPartitioner(num_partitions=1)
        if writer == "legacy":
            t5x_checkpoints.Checkpointer(state, partitioner, str(folder)).save(state)
            return
        manager = t5x_checkpoints.OrbaxCheckpointManagerInterface(
            str(folder.resolve()), state, partitioner, period=1
        )
        manager.save(state)
        manager.wait_until_finished()
        manager.close()
        for file in folder.rglob("commit_success.txt"):
            file.unlink()  # it only names the folder that this was written in


def _leaf(name, shape, flat):
    stack, inner, rest = (*name.split("/", 2), "")[:3]
    if inner != stack:
        return flat[name].reshape(shape)
    count = shape[1]  # scalable_t5's default axis of layers
    each = [f"{stack}/layers_{i}/{rest}" for i in range(count)]
    if each[0] not in flat:
        each = [f"{stack}/{rest}"] * count  # biases of a model that shares them
    one = shape[:1] + shape[2:]
    return jnp.stack([flat[n].reshape(one) for n in each], axis=1)


def same(loaded, model):
    """Check that a checkpoint that T5X wrote is the model that it was made from."""
    rate = model.config.dropout_rate  # which shapes do not tell
    assert dataclasses.replace(loaded.config, dropout_rate=rate) == model.config
    jax.tree.map(np.testing.assert_array_equal, loaded.params, model.params)


def make(folder):
    """Add T5X's results to one folder."""
    model = checkpoints.load(folder).model
    expected = np.load(folder / "expected.npz")
    source, given = (jnp.asarray(expected[k]) for k in ("source", "decoder_input"))
    own = model.config.relative_bias_per_layer
    if own:
        reference = Reference("scalable_t5", model.config, scan_layers=False)
    else:
        reference = Reference("t5", model.config)
    params = reference.params(model.params)
    logits = reference.logits(params, source, given)
    found = reference.greedy(params, source, expected["greedy"].shape[1])
    np.savez_compressed(folder / "expected_t5x.npz", logits=logits, greedy=found)
    apart = np.abs(logits - expected["logits"]).max()
    print(folder.name, "T5X and Hugging Face:", apart, np.array_equal(found, expected["greedy"]))
    with tempfile.TemporaryDirectory() as scratch:
        reference.save(params, Path(scratch), "legacy")
        same(checkpoints.load(Path(scratch) / "checkpoint_0").model, model)
    if folder.name not in SCANNED:
        return
    scanned = Reference("scalable_t5", model.config, scan_layers=True)
    params = scanned.params(model.params)
    print("  scanned:", np.abs(scanned.logits(params, source, given) - logits).max())
    for writer in ("legacy", "orbax"):
        scanned.save(params, folder / "scanned", writer)
        same(checkpoints.load(folder / "scanned/checkpoint_0").model, model)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("t5x", type=Path, help="the checkout")
    parser.add_argument("golden", type=Path)
    arguments = parser.parse_args()
    t5x.__path__.append(str(arguments.t5x / "t5x"))
    for family in sorted(arguments.golden.glob("*/expected.npz")):
        make(family.parent)
