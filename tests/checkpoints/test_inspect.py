"""What the headers tell, and conversion between every two formats."""

import dataclasses
import itertools
import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from tiny_t5s import CONFIGS, random_t5, same_params

from specdec_jax import checkpoints
from specdec_jax.checkpoints import arrays, bundle, inspect, native, safetensors_file, tensors, tree
from specdec_jax.checkpoints.convert import convert
from specdec_jax.errors import SpecdecError
from specdec_jax.t5.config import PRESETS, preset


def place(root, form):
    return root / form / "checkpoint_0" if form in ("t5x", "orbax") else root / form


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(checkpoints.FORMATS, 2)))
def test_between_every_two_formats_no_bit_changes(first, second, model_1_1, tmp_path):
    bundle.save(tmp_path / "start", model_1_1)
    convert(tmp_path / "start", place(tmp_path, first), format=first)
    convert(place(tmp_path, first), place(tmp_path, second), format=second)
    opened = checkpoints.open_checkpoint(place(tmp_path, second))
    assert opened.format == second
    assert {t.dtype.name for t in opened.tensors.values()} == {"bfloat16"}
    same_params(checkpoints.load(place(tmp_path, second)).model, model_1_1)


@pytest.mark.parametrize("form", checkpoints.FORMATS)
def test_inspect(form, model, tmp_path):
    bundle.save(tmp_path / "start", model)
    path = place(tmp_path, form)
    convert(tmp_path / "start", path, format=form, dtype="float32")
    found = inspect.inspect(path)
    json.dumps(found)
    count = sum(int(np.prod(s)) for s in tree.shapes(model.config).values())
    assert found["format"] == form
    form_of = {"T5 1.0": "1.0", "T5 1.1": "1.1", "umT5": "umT5"}
    assert CONFIGS[form_of[found["family"]]] == model.config
    assert found["parameters"] == count
    assert found["bytes"] == 4 * count
    assert found["dtypes"] == {"float32": count}
    assert found["sizes"] == "D8 H2x3 F12 2+3 V40"
    assert found["preset"] is None
    assert not found["missing"]
    assert not found["surplus"]
    assert not found["wrong_shape"]
    text = inspect.render(found)
    assert f"{count:,} in float32" in text
    assert "nothing missing or surplus" in text


def test_every_preset_is_recognised():
    for name, config in PRESETS.items():
        assert inspect.preset_of(dataclasses.replace(config, vocab_size=77)) == name


@pytest.mark.parametrize(
    ("config", "family"),
    [
        (preset("t5_1_0_base"), "T5 1.0"),
        (preset("base"), "T5 1.1"),
        (preset("base", vocab_size=250112), "mT5"),
        (preset("base", vocab_size=384), "byT5"),
        (preset("base", vocab_size=256384, relative_bias_per_layer=True), "umT5"),
        (preset("base", logits_via_embedding=True), "T5 of mixed form"),
    ],
)
def test_family(config, family):
    assert inspect.family(config) == family


def test_a_broken_checkpoint_is_described(model_1_1, tmp_path):
    bundle.save(tmp_path / "m", model_1_1, dtype="float16")
    file = tmp_path / "m/model.safetensors"
    kept = {n: tensors.Tensor.of(t.read()) for n, t in safetensors_file.read(file).items()}
    kept["stranger"] = kept.pop("decoder/decoder_norm/scale")
    kept["encoder/encoder_norm/scale"] = tensors.Tensor.of(np.ones(9, np.float16))
    safetensors_file.write(file, kept, dtype="float16")
    found = inspect.inspect(tmp_path / "m")
    assert found["missing"] == {"decoder/decoder_norm/scale": [8]}
    assert found["surplus"] == {"stranger": [8]}
    assert found["wrong_shape"] == {"encoder/encoder_norm/scale": [[8], [9]]}
    text = inspect.render(found)
    assert "missing (1):" in text
    assert "surplus (1):" in text
    assert "wrong shape (1):" in text
    assert "float16 on disk" in text
    with pytest.raises(SpecdecError, match="stranger"):
        convert(tmp_path / "m", tmp_path / "n", format="hf")
    assert not (tmp_path / "n").exists()


def test_no_weight_is_read(model_1_1, tmp_path, monkeypatch):
    bundle.save(tmp_path / "start", model_1_1)
    for form in checkpoints.FORMATS:
        convert(tmp_path / "start", place(tmp_path, form), format=form)

    def memory(shape, dtype):
        raise AssertionError("a weight was read")

    # Every reader asks for memory to read into.
    for reader in (safetensors_file, arrays):
        monkeypatch.setattr(reader, "aligned", memory)
    for form in checkpoints.FORMATS:
        inspect.inspect(place(tmp_path, form))
        with pytest.raises(AssertionError, match="a weight was read"):
            checkpoints.load(place(tmp_path, form))


HEADERS = """
import sys
from specdec_jax.checkpoints.inspect import inspect

for path in sys.argv[1:]:
    inspect(path)
print(sorted({"jax", "flax", "orbax", "torch"} & set(sys.modules)))
"""


def test_headers_wait_for_no_jax(model_1_1, tmp_path):
    """JAX, Flax and Orbax take seconds to be imported, headers milliseconds to be read."""
    bundle.save(tmp_path / "start", model_1_1)
    paths = [place(tmp_path, form) for form in checkpoints.FORMATS]
    for form, path in zip(checkpoints.FORMATS, paths, strict=True):
        convert(tmp_path / "start", path, format=form)
    command = [sys.executable, "-c", HEADERS, *map(str, paths)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_padding_of_the_public_vocabularies_is_told(tmp_path):
    config = dataclasses.replace(CONFIGS["1.1"], vocab_size=32128, emb_dim=1)
    bundle.save(tmp_path / "m", random_t5(config))
    convert(tmp_path / "m", tmp_path / "hf", format="hf")
    found = inspect.inspect(tmp_path / "hf")
    assert found["vocab_size"] == 32100
    assert "28 rows of the embedding are padding" in inspect.render(found)
    assert checkpoints.load(tmp_path / "hf").model.vocab_size == 32100


def test_convert_refuses(model_1_1, tmp_path):
    bundle.save(tmp_path / "m", model_1_1)
    with pytest.raises(SpecdecError, match="No format is called 'gguf'; the formats are specdec, "):
        convert(tmp_path / "m", tmp_path / "n", format="gguf")
    with pytest.raises(SpecdecError, match="is the source itself"):
        convert(tmp_path / "m", tmp_path / "m/", format="specdec")
    with pytest.raises(SpecdecError, match="'int8' is none of these"):
        convert(tmp_path / "m", tmp_path / "n", format="hf", dtype="int8")


def test_a_bundle_keeps_what_other_formats_cannot_hold(model, tmp_path):
    bundle.save(tmp_path / "m", model, extra={"step": 3})
    convert(tmp_path / "m", tmp_path / "n", format="specdec", dtype="float32")
    back = bundle.load(tmp_path / "n")
    assert back.extra == {"step": 3}
    assert back.model.vocab_size == 37


PEAK = """
import sys
import jax.numpy as jnp
from specdec_jax import checkpoints
from specdec_jax.checkpoints import bundle

def kilobytes(field):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))

jnp.zeros(3).block_until_ready()
for path in sys.argv[1:]:
    open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
    before = kilobytes("VmRSS")
    loaded = checkpoints.load(path, dtype="bfloat16")
    print(kilobytes("VmHWM") - before)
    del loaded
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_loading_holds_no_second_copy(tmp_path):
    # 84 MiB in arrays of at most 4 MiB; ones, so that bytes are really there.
    sizes = {"vocab_size": 4096, "emb_dim": 512, "num_heads": 8, "head_dim": 64, "mlp_dim": 4096}
    config = dataclasses.replace(CONFIGS["1.1"], **sizes)
    ones = {
        name: tensors.Tensor.of(np.ones(shape, jnp.bfloat16))
        for name, shape in tree.shapes(config).items()
    }
    made = tensors.Checkpoint("specdec", tmp_path, config, ones, config.vocab_size)
    native.write(tmp_path / "specdec", made, dtype="bfloat16")
    for form in ("hf", "t5x"):
        convert(tmp_path / "specdec", place(tmp_path, form), format=form)
    paths = [str(place(tmp_path, form)) for form in ("specdec", "hf", "t5x")]
    ran = subprocess.run(
        [sys.executable, "-c", PEAK, *paths], capture_output=True, text=True, check=True
    )
    size = 2 * sum(t.size for t in ones.values())
    peaks = [1024 * int(line) for line in ran.stdout.split()]
    assert len(peaks) == 3
    # The lower bound: that what is measured is the parameters. Pages that imports or an earlier
    # load gave back may serve, so it is half of them, and holds for the first load alone.
    assert peaks[0] > 0.5 * size
    assert max(peaks) < 1.2 * size
