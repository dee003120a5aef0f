"""Our own folder: what goes in comes out, and nothing half-written is ever seen."""

import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from tiny_t5s import CONFIGS, random_t5, same_params

from specdec_jax import checkpoints
from specdec_jax.checkpoints import bundle, safetensors_file, tree
from specdec_jax.checkpoints.tensors import Tensor
from specdec_jax.errors import SpecdecError
from specdec_jax.t5.model import prepare
from specdec_jax.t5.network import Transformer


@pytest.mark.parametrize("form", sorted(CONFIGS))
def test_the_tree_is_the_networks(form):
    tokens = jnp.ones((1, 2), jnp.int32)
    made = jax.eval_shape(Transformer(CONFIGS[form]).init, jax.random.key(0), tokens, tokens)
    found = {name: leaf.shape for name, leaf in tree.flatten(made["params"])}
    assert tree.shapes(CONFIGS[form]) == found


@pytest.mark.parametrize("form", sorted(CONFIGS))
def test_shapes_tell_the_sizes(form):
    assert tree.config_of(tree.shapes(CONFIGS[form]), where="x").describe() == (
        CONFIGS[form].describe()
    )
    config = tree.config_of(tree.shapes(CONFIGS[form]), where="x")
    assert config.relative_bias_per_layer == CONFIGS[form].relative_bias_per_layer
    assert config.mlp_activations == CONFIGS[form].mlp_activations
    assert config.logits_via_embedding == CONFIGS[form].logits_via_embedding


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_round_trip(model, dtype, tmp_path):
    vocabulary = tmp_path / "pieces.model"
    vocabulary.write_bytes(b"pieces")
    bundle.save(tmp_path / "a/b", model, dtype=dtype, vocabulary=vocabulary, extra={"step": 3})
    back = bundle.load(tmp_path / "a/b")
    same_params(back.model, model)
    assert back.model.config == model.config
    assert back.model.vocab_size == 37
    assert back.extra == {"step": 3}
    assert back.vocabulary_path == tmp_path / "a/b/pieces.model"
    assert (tmp_path / "a/b/pieces.model").read_bytes() == b"pieces"
    assert not back.byte_vocabulary


def test_the_reference_library_reads_what_we_write_and_we_what_it_writes(model_1_1, tmp_path):
    bundle.save(tmp_path / "m", model_1_1)
    theirs = safetensors.numpy.load_file(tmp_path / "m/model.safetensors")
    for name, leaf in tree.flatten(model_1_1.params):
        np.testing.assert_array_equal(theirs[name].astype(np.float32), leaf)
    safetensors.numpy.save_file(theirs, tmp_path / "m/model.safetensors")
    same_params(bundle.load(tmp_path / "m").model, model_1_1)


def test_a_prepared_model_is_saved_token_major(model_1_1, tmp_path):
    bundle.save(tmp_path / "m", prepare(model_1_1, platform="cpu"))
    same_params(bundle.load(tmp_path / "m").model, model_1_1)


def test_parameters_can_stay_narrow_in_memory(model_1_1, tmp_path):
    bundle.save(tmp_path / "m", model_1_1)
    leaves = jax.tree.leaves(bundle.load(tmp_path / "m", dtype="bfloat16").model.params)
    assert {leaf.dtype.name for leaf in leaves} == {"bfloat16"}


def test_byte_vocabulary(model_1_1, tmp_path):
    bundle.save(tmp_path / "m", model_1_1, vocabulary="bytes")
    back = bundle.load(tmp_path / "m")
    assert back.byte_vocabulary
    assert back.vocabulary_path is None


def test_an_older_bundle_is_replaced_and_nothing_else(model_1_1, tmp_path):
    path = tmp_path / "m"
    bundle.save(path, random_t5(CONFIGS["1.0"]))
    bundle.save(path, model_1_1)
    same_params(checkpoints.load(path).model, model_1_1)
    assert os.listdir(tmp_path) == ["m"]
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter").write_text("words")
    with pytest.raises(SpecdecError, match="exists and is not a checkpoint"):
        bundle.save(tmp_path / "thesis", model_1_1)
    assert (tmp_path / "thesis/chapter").read_text() == "words"


def test_a_full_disk_leaves_the_older_bundle(model, model_1_1, tmp_path, monkeypatch):
    bundle.save(tmp_path / "m", model)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SpecdecError, match=r"No space left on device \(.* GiB free there\)"):
        bundle.save(tmp_path / "m", model_1_1)
    same_params(bundle.load(tmp_path / "m").model, model)
    assert os.listdir(tmp_path) == ["m"]


def test_float16_that_overflows_is_refused(big_number, tmp_path):
    with pytest.raises(
        SpecdecError, match=r"layers_1/mlp/wo/kernel holds 7.*e\+04, float16 ends at 6.55e\+04"
    ):
        bundle.save(tmp_path / "m", big_number, dtype="float16")
    assert os.listdir(tmp_path) == []
    bundle.save(tmp_path / "m", big_number, dtype="bfloat16")
    with pytest.raises(SpecdecError, match="use bfloat16 or float32"):
        bundle.load(tmp_path / "m", dtype="float16")


def test_nan_is_found_when_asked_for(model_1_1, tmp_path):
    model_1_1.params["decoder"]["decoder_norm"]["scale"] = jnp.full(8, jnp.nan)
    bundle.save(tmp_path / "m", model_1_1)
    bundle.load(tmp_path / "m")
    with pytest.raises(SpecdecError, match="decoder_norm/scale has 8 of 8 elements that are NaN"):
        checkpoints.load(tmp_path / "m", finite=True)


def test_every_truncation_is_told(model_1_1, tmp_path):
    bundle.save(tmp_path / "m", model_1_1)
    file = tmp_path / "m/model.safetensors"
    whole = file.read_bytes()
    for length in (0, 5, 8, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(SpecdecError, match="cut short"):
            bundle.load(tmp_path / "m")


def test_a_file_of_something_else_is_told(model_1_1, tmp_path):
    bundle.save(tmp_path / "m", model_1_1)
    for content in (b"\x08\0\0\0\0\0\0\0not json", b"\x02\0\0\0\0\0\0\0[]"):
        (tmp_path / "m/model.safetensors").write_bytes(content)
        with pytest.raises(SpecdecError, match="not a safetensors file"):
            bundle.load(tmp_path / "m")
    safetensors.numpy.save_file({"a": np.arange(3)}, tmp_path / "m/model.safetensors")
    with pytest.raises(SpecdecError, match="a has dtype I64"):
        bundle.load(tmp_path / "m")


def test_all_differences_in_one_text(model_1_1, tmp_path):
    bundle.save(tmp_path / "m", model_1_1)
    file = tmp_path / "m/model.safetensors"
    tensors = safetensors_file.read(file)
    kept = {n: t for n, t in tensors.items() if "decoder/layers_2" not in n}
    kept["stranger"] = Tensor.of(np.zeros(2, np.float32))
    kept["decoder/decoder_norm/scale"] = Tensor.of(np.zeros(7, np.float32))
    kept = {n: Tensor.of(t.read()) for n, t in kept.items()}
    safetensors_file.write(file, kept, dtype="float32")
    with pytest.raises(SpecdecError) as caught:
        bundle.load(tmp_path / "m")
    text = str(caught.value)
    # 11 kernels and 3 norms of the layer.
    assert "missing (14):" in text
    assert "  and 6 more" in text
    assert "surplus (1):\n  stranger (2,)" in text
    assert "decoder/decoder_norm/scale wanted (8,), found (7,)" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, "fields colour, unknown"),
        ({"emb_dim": "wide"}, "malformed field"),
        ({"vocabulary": "gone.model"}, "names the vocabulary gone.model, which is not there"),
        ({"vocab_size_used": 41}, "41 ids"),
    ],
)
def test_a_wrong_config_is_told(change, message, model_1_1, tmp_path):
    bundle.save(tmp_path / "m", model_1_1)
    file = tmp_path / "m/config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(SpecdecError, match=message):
        bundle.load(tmp_path / "m")


def test_a_path_that_is_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecdecError, match=f"No checkpoint at no/such .looked from {tmp_path}"):
        checkpoints.load("no/such")
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecdecError, match="is a file; give the folder"):
        checkpoints.load("file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecdecError, match="no checkpoint of a known format"):
        checkpoints.load("empty/")


def test_a_shipped_name(model_1_1, tmp_path, monkeypatch):
    bundle.save(tmp_path / "models/tiny", model_1_1)
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    monkeypatch.chdir(tmp_path)
    same_params(checkpoints.load("tiny").model, model_1_1)
    with pytest.raises(SpecdecError, match="shipped: tiny"):
        checkpoints.load("tinny")
