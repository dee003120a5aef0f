"""Hugging Face folders: names, forms, refusals, and round trips without a changed bit."""

import dataclasses
import json
import sys
import types
import zipfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from tiny_t5s import CONFIGS, random_t5, same_params

import specdec_jax
from specdec_jax import checkpoints
from specdec_jax.checkpoints import bundle, huggingface, safetensors_file, tree
from specdec_jax.checkpoints.convert import convert
from specdec_jax.checkpoints.hf_names import hf_name
from specdec_jax.checkpoints.tensors import Tensor
from specdec_jax.errors import SpecdecError

PIECES = Path(specdec_jax.__file__).parent / "models/ende_target/vocabulary.model"


@pytest.fixture
def folder(model_1_1, tmp_path):
    """A folder as transformers 4 saved a T5 1.1."""
    bundle.save(tmp_path / "ours", model_1_1)
    convert(tmp_path / "ours", tmp_path / "hf", format="hf")
    return tmp_path / "hf"


def change(folder, **fields):
    file = folder / "config.json"
    content = {**json.loads(file.read_text()), **fields}
    file.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def rewrite(folder, edit):
    file = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(file)
    edit(tensors)
    safetensors.numpy.save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize("shard_bytes", [10**9, 700])
def test_round_trip(shard_bytes, model, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface, "_SHARD_BYTES", shard_bytes)
    bundle.save(tmp_path / "ours", model)
    convert(tmp_path / "ours", tmp_path / "hf", format="hf")
    assert (tmp_path / "hf/model.safetensors").exists() == (shard_bytes > 700)
    back = checkpoints.load(tmp_path / "hf").model
    same_params(back, model)
    assert back.config.mlp_activations == model.config.mlp_activations
    assert back.config.logits_via_embedding == model.config.logits_via_embedding
    assert back.config.relative_bias_per_layer == model.config.relative_bias_per_layer


def test_t5x_to_huggingface_and_back_changes_no_bit(model, tmp_path):
    bundle.save(tmp_path / "ours", model)
    first, hf, last = (tmp_path / n for n in ("a/checkpoint_0", "hf", "b/checkpoint_0"))
    convert(tmp_path / "ours", first, format="t5x")
    convert(first, hf, format="hf")
    convert(hf, last, format="t5x")
    files = sorted(p.relative_to(first) for p in first.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(last) for p in last.rglob("*") if p.is_file())
    for file in files:
        if file.name != "checkpoint":  # the index; its order of names differs
            assert (first / file).read_bytes() == (last / file).read_bytes(), file


def test_every_name_is_transformers(folder, model_1_1):
    """Kernels transposed, norms not; names as in the golden files, which transformers wrote."""
    theirs = safetensors.numpy.load_file(folder / "model.safetensors")
    ours = dict(tree.flatten(model_1_1.params))
    kernel = ours["decoder/layers_2/encoder_decoder_attention/out/kernel"]
    np.testing.assert_array_equal(
        theirs["decoder.block.2.layer.1.EncDecAttention.o.weight"], kernel.T
    )
    bias = ours["encoder/relpos_bias/rel_embedding"]
    name = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    np.testing.assert_array_equal(theirs[name], bias.T)
    np.testing.assert_array_equal(
        theirs["decoder.block.1.layer.2.layer_norm.weight"],
        ours["decoder/layers_1/pre_mlp_layer_norm/scale"],
    )


@pytest.mark.parametrize("form", sorted(CONFIGS))
def test_no_two_parameters_share_a_name(form):
    names = [hf_name(name)[0] for name in tree.shapes(CONFIGS[form])]
    assert len(set(names)) == len(names)


def test_copies_of_the_embedding_and_the_unused_table_are_no_surplus(folder, model_1_1):
    def add(tensors):
        tensors["encoder.embed_tokens.weight"] = tensors["shared.weight"]
        tensors["decoder.embed_tokens.weight"] = tensors.pop("shared.weight")
        name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
        tensors[name] = np.ones((32, 2), jnp.bfloat16)

    rewrite(folder, add)
    same_params(checkpoints.load(folder).model, model_1_1)


def test_tied_with_a_copy_of_the_head(tmp_path):
    model = random_t5(CONFIGS["1.0"])
    bundle.save(tmp_path / "ours", model)
    convert(tmp_path / "ours", tmp_path / "hf", format="hf")
    rewrite(tmp_path / "hf", lambda t: t.update({"lm_head.weight": t["shared.weight"]}))
    same_params(checkpoints.load(tmp_path / "hf").model, model)


def test_tied_without_the_scale_is_untied_with_the_embedding_as_head(folder, model_1_1):
    """As transformers 5 writes a T5 1.1 whose head was tied."""
    rewrite(folder, lambda t: t.pop("lm_head.weight"))
    change(folder, tie_word_embeddings=True, scale_decoder_outputs=False)
    model = checkpoints.load(folder).model
    assert not model.config.logits_via_embedding
    np.testing.assert_array_equal(
        model.params["decoder"]["logits_dense"]["kernel"],
        model_1_1.params["token_embedder"]["embedding"].T,
    )


def test_mt5_of_transformers_5_is_untied(folder, model_1_1):
    change(folder, model_type="mt5", tie_word_embeddings=True)
    same_params(checkpoints.load(folder).model, model_1_1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "longt5"}, "'longt5': its encoder attends locally"),
        ({"model_type": "switch_transformers"}, "mixtures of experts"),
        ({"model_type": "bart"}, "'bart': known are t5, mt5, byt5, umt5"),
        ({"feed_forward_proj": "gelu"}, "feed_forward_proj is 'gelu'; known are relu"),
        ({"pad_token_id": 3}, "pad_token_id is 3"),
        ({"layer_norm_epsilon": 1e-5}, "layer_norm_epsilon is 1e-05"),
        ({"decoder_start_token_id": 2}, "starts from the pad id"),
        ({"d_kv": None}, "lacks a size, .*d_kv"),
        ({"d_model": "8"}, "malformed"),
    ],
)
def test_what_this_network_does_not_compute_is_refused(fields, message, folder):
    change(folder, **fields)
    with pytest.raises(SpecdecError, match=message):
        checkpoints.load(folder)


def test_differences_name_both_sides(folder):
    def damage(tensors):
        del tensors["decoder.block.1.layer.2.DenseReluDense.wo.weight"]
        tensors["adapter.weight"] = np.ones(3, np.float32)
        tensors["shared.weight"] = np.ones((39, 8), np.float32)

    rewrite(folder, damage)
    with pytest.raises(SpecdecError) as caught:
        checkpoints.load(folder)
    text = str(caught.value)
    assert "missing (1):\n  decoder/layers_1/mlp/wo/kernel (12, 8)" in text
    assert "surplus (1):\n  adapter.weight (3,)" in text
    assert "token_embedder/embedding wanted (40, 8), found (39, 8)" in text


def test_an_encoder_alone_is_told(folder):
    rewrite(folder, lambda t: [t.pop(n) for n in list(t) if n.startswith("decoder.")])
    with pytest.raises(SpecdecError, match=r"missing \(44\):"):
        checkpoints.load(folder)


def test_missing_and_damaged_shards(model_1_1, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface, "_SHARD_BYTES", 2000)
    bundle.save(tmp_path / "ours", model_1_1)
    convert(tmp_path / "ours", tmp_path / "hf", format="hf")
    shard = sorted((tmp_path / "hf").glob("model-*"))[1]
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    with pytest.raises(SpecdecError, match=f"{shard.name} is cut short"):
        checkpoints.load(tmp_path / "hf")
    shard.unlink()
    with pytest.raises(SpecdecError, match=f"lacks 1 of its .* shards: {shard.name}"):
        checkpoints.load(tmp_path / "hf")
    (tmp_path / "hf/model.safetensors.index.json").unlink()
    with pytest.raises(SpecdecError, match=r"neither model\.safetensors nor its index"):
        checkpoints.load(tmp_path / "hf")


class TorchTensor:
    """What the reader needs of a torch tensor."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, f"torch.{array.dtype.name}"

    def float(self):
        return types.SimpleNamespace(numpy=lambda: self.array.astype(np.float32))


def test_a_torch_file_needs_torch_and_its_safe_loader(folder, model_1_1, monkeypatch):
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    file.write_bytes(b"pickle")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SpecdecError, match="torch is not installed; install torch, or save"):
        checkpoints.load(folder)

    def load(path, *, map_location, weights_only, mmap):
        assert weights_only is True
        assert mmap == zipfile.is_zipfile(path)  # torch refuses to map any other file
        return {name: TorchTensor(array) for name, array in tensors.items()}

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(load=load))
    same_params(checkpoints.load(folder).model, model_1_1)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", b"pickle")
    same_params(checkpoints.load(folder).model, model_1_1)

    def refuse(path, **options):
        raise RuntimeError("Weights only load failed: os.system")

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(load=refuse))
    with pytest.raises(SpecdecError, match=r"never loaded \(Weights only load failed"):
        checkpoints.load(folder)


def test_the_vocabulary_travels_with_its_sentinels(tmp_path):
    config = dataclasses.replace(CONFIGS["1.1"], vocab_size=2176)
    model = random_t5(config, vocab_size=2148)
    bundle.save(tmp_path / "ours", model, vocabulary=PIECES)
    convert(tmp_path / "ours", tmp_path / "hf", format="hf")
    back = checkpoints.load(tmp_path / "hf")
    assert back.vocabulary_path == tmp_path / "hf/spiece.model"
    assert back.model.vocab_size == 2148  # 2048 pieces and 100 sentinels; 28 rows are padding
    (tmp_path / "hf/tokenizer_config.json").write_text(json.dumps({"extra_ids": 0}))
    assert checkpoints.load(tmp_path / "hf").model.vocab_size == 2048
    (tmp_path / "hf/spiece.model").write_bytes(b"no pieces")
    with pytest.raises(SpecdecError, match="not a sentencepiece model"):
        checkpoints.load(tmp_path / "hf")


def test_bytes(folder):
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer"}))
    back = checkpoints.load(folder)
    assert back.byte_vocabulary
    assert back.model.vocab_size == 40


def test_float16_infinities_are_found_when_asked_for(folder):
    tensors = safetensors_file.read(folder / "model.safetensors")
    arrays = {n: t.read().astype(np.float16) for n, t in tensors.items()}
    arrays["shared.weight"][0, 0] = np.inf
    safetensors_file.write(
        folder / "model.safetensors",
        {n: Tensor.of(a) for n, a in arrays.items()},
        dtype="float16",
    )
    checkpoints.load(folder)
    with pytest.raises(SpecdecError, match="token_embedder/embedding has 1 of 320 elements"):
        checkpoints.load(folder, finite=True)
