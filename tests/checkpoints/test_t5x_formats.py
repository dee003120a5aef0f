"""T5X's checkpoints: legacy, Orbax and scanned; read as T5X writes, written as it reads."""

import json
import shutil
from typing import Any

import flax.serialization
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts
from tiny_t5s import CONFIGS, random_t5, same_params

from specdec_jax import checkpoints
from specdec_jax.checkpoints import arrays, bundle, orbax_folder, t5x_legacy, tree
from specdec_jax.errors import SpecdecError

NO_SYNC = ts.Context({"file_io_sync": False})


def as_t5x_writes(path, params, *, store_bits=False, in_index=()):
    """A legacy checkpoint by flax and tensorstore alone, gzipped as T5X's are."""
    path.mkdir(parents=True)
    target = {}
    for name, leaf in tree.flatten(params):
        array = np.asarray(leaf, jnp.bfloat16)
        if name in in_index:
            target[name] = array
            continue
        if store_bits:
            array = array.view(np.uint16)
        dotted = "target." + name.replace("/", ".")
        spec = {
            "driver": "zarr",
            "dtype": array.dtype.name,
            "kvstore": {"driver": "file", "path": dotted},
            "metadata": {
                "shape": list(array.shape),
                "chunks": [-(-array.shape[0] // 2), *array.shape[1:]],
                "compressor": {"id": "gzip"},
            },
        }
        absolute = {**spec, "kvstore": {"driver": "file", "path": str(path / dotted)}}
        ts.open(absolute, create=True, context=NO_SYNC).result().write(array).result()
        target[name] = ts.Spec(spec).to_json()
    state = {"step": np.int32(7), "param_states": {"x": {"v": np.ones(3, np.float32)}}}
    content = {"version": 3, "optimizer": {"state": state, "target": tree.nest(target)}}
    (path / "checkpoint").write_bytes(flax.serialization.msgpack_serialize(content))
    return path


def as_orbax_writes(path, params, **options):
    state = {"target": params, "state": {"step": np.int32(7), "param_states": {}}}
    handler = ocp.PyTreeCheckpointHandler(**options)
    ocp.Checkpointer(handler).save(path, args=ocp.args.PyTreeSave(state))
    return path


def scanned(model, *, axis=1):
    """The same parameters as scalable_t5 lays them out: stacked, heads apart, biases per layer."""
    cfg = model.config
    flat = dict(tree.flatten(model.params))
    stacked = {n: x for n, x in flat.items() if "/layers_" not in n and "relpos" not in n}
    for stack, count in (("encoder", cfg.num_encoder_layers), ("decoder", cfg.num_decoder_layers)):
        for name in [n for n in flat if n.startswith(f"{stack}/layers_0/")]:
            layers = [flat[name.replace("layers_0", f"layers_{i}")] for i in range(count)]
            if "attention/" in name:
                apart = (cfg.emb_dim, cfg.num_heads, cfg.head_dim)
                apart = apart[1:] + apart[:1] if name.endswith("out/kernel") else apart
                layers = [x.reshape(apart) for x in layers]
            rest = name.removeprefix(f"{stack}/layers_0/")
            stacked[f"{stack}/{stack}/{rest}"] = jnp.stack(layers, axis)
        if not cfg.relative_bias_per_layer:
            bias = flat[f"{stack}/relpos_bias/rel_embedding"]
            stacked[f"{stack}/{stack}/relpos_bias/rel_embedding"] = jnp.stack([bias] * count, axis)
    return tree.nest(stacked)


def test_legacy_as_t5x_writes_it(model, tmp_path):
    as_t5x_writes(tmp_path / "checkpoint_7", model.params)
    back = checkpoints.load(tmp_path / "checkpoint_7/").model
    same_params(back, model)
    assert back.config.mlp_activations == model.config.mlp_activations


def test_legacy_arrays_in_the_index_and_bits_of_2020(model_1_1, tmp_path):
    small = ("decoder/decoder_norm/scale", "encoder/relpos_bias/rel_embedding")
    as_t5x_writes(tmp_path / "checkpoint_7", model_1_1.params, store_bits=True, in_index=small)
    same_params(checkpoints.load(tmp_path / "checkpoint_7").model, model_1_1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", [t5x_legacy, orbax_folder])
def test_round_trip(form, dtype, model, tmp_path):
    bundle.save(tmp_path / "ours", model, dtype="float32")
    form.write(
        tmp_path / "checkpoint_3", checkpoints.open_checkpoint(tmp_path / "ours"), dtype=dtype
    )
    opened = checkpoints.open_checkpoint(tmp_path / "checkpoint_3")
    assert opened.format == form.FORMAT
    assert {t.dtype.name for t in opened.tensors.values()} == {dtype}
    same_params(checkpoints.load(tmp_path / "checkpoint_3").model, model)


def test_flax_reads_the_index_that_we_write(model_1_1, tmp_path):
    bundle.save(tmp_path / "ours", model_1_1)
    t5x_legacy.write(
        tmp_path / "checkpoint_3", checkpoints.open_checkpoint(tmp_path / "ours"), dtype="float32"
    )
    data = (tmp_path / "checkpoint_3/checkpoint").read_bytes()
    content: Any = flax.serialization.msgpack_restore(data)
    assert content.keys() == {"version", "optimizer"}
    assert content["version"] == 3
    step = content["optimizer"]["state"]["step"]
    assert (step.dtype, step.shape, int(step)) == (np.dtype(np.int32), (), 3)
    for path, leaf in jax.tree_util.tree_leaves_with_path(model_1_1.params):
        spec = content["optimizer"]["target"]
        for key in path:
            spec = spec[key.key]
        ts.Spec(spec)
        spec["kvstore"]["path"] = str(tmp_path / "checkpoint_3" / spec["kvstore"]["path"])
        np.testing.assert_array_equal(ts.open(spec).result().read().result(), leaf)


@pytest.mark.parametrize(
    "options", [{}, {"use_ocdbt": False}, {"use_zarr3": True}], ids=["ocdbt", "files", "zarr3"]
)
def test_orbax_as_it_writes(options, model_1_1, tmp_path):
    as_orbax_writes(tmp_path / "checkpoint_7/state", model_1_1.params, **options)
    same_params(checkpoints.load(tmp_path / "checkpoint_7").model, model_1_1)


@pytest.mark.parametrize(
    "wrap", [lambda p: p, lambda p: {"params": p}, lambda p: {"params": {"params": p}}]
)
def test_orbax_of_a_flax_program(wrap, model_1_1, tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(2, args=ocp.args.StandardSave(wrap(model_1_1.params)))
        manager.wait_until_finished()
    same_params(checkpoints.load(tmp_path / "run/2").model, model_1_1)


def test_orbax_restores_what_we_write(model_1_1, tmp_path):
    bundle.save(tmp_path / "ours", model_1_1)
    opened = checkpoints.open_checkpoint(tmp_path / "ours")
    orbax_folder.write(tmp_path / "run/checkpoint_3", opened, dtype="float32")
    options = ocp.CheckpointManagerOptions(step_prefix="checkpoint", read_only=True)
    with ocp.CheckpointManager(tmp_path / "run", options=options) as manager:
        assert manager.latest_step() == 3
        args = ocp.args.Composite(state=ocp.args.PyTreeRestore())
        state = manager.restore(3, args=args)["state"]
    assert int(state["state"]["step"]) == 3
    for name, leaf in tree.flatten(model_1_1.params):
        np.testing.assert_array_equal(dict(tree.flatten(state["target"]))[name], leaf)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("write", [as_t5x_writes, as_orbax_writes])
def test_scanned(write, axis, model, tmp_path):
    write(tmp_path / "checkpoint_7", scanned(model, axis=axis))
    opened = checkpoints.open_checkpoint(tmp_path / "checkpoint_7")
    assert opened.detail.startswith("scanned layers, heads apart")
    own = model.config.relative_bias_per_layer
    assert ("encoder biases in every layer, all equal" in opened.detail) != own
    same_params(checkpoints.load(tmp_path / "checkpoint_7").model, model)


def test_one_number_makes_biases_each_layer_s_own(model_1_1, tmp_path):
    params = scanned(model_1_1)
    bias = params["decoder"]["decoder"]["relpos_bias"]
    bias["rel_embedding"] = bias["rel_embedding"].at[0, 2, 5].add(1.0)
    as_t5x_writes(tmp_path / "checkpoint_7", params)
    back = checkpoints.load(tmp_path / "checkpoint_7").model
    assert back.config.relative_bias_per_layer
    tables = [
        back.params[stack][f"layers_{i}"]["relpos_bias"]["rel_embedding"]
        for stack, count in (("encoder", 2), ("decoder", 3))
        for i in range(count)
    ]
    changed = tables.pop()
    for table, stack in zip(tables, ("encoder",) * 2 + ("decoder",) * 2, strict=True):
        np.testing.assert_array_equal(
            table, model_1_1.params[stack]["relpos_bias"]["rel_embedding"]
        )
    assert np.flatnonzero(changed - tables[-1]).tolist() == [5]


@pytest.mark.parametrize("form", [t5x_legacy, orbax_folder])
def test_umt5_is_written_as_scalable_t5_has_it(form, tmp_path):
    """Heads apart and a table in every layer: that network is T5X's only one of this form."""
    model = random_t5(CONFIGS["umT5"])
    bundle.save(tmp_path / "ours", model)
    opened = checkpoints.open_checkpoint(tmp_path / "ours")
    form.write(tmp_path / "checkpoint_3", opened, dtype="float32")
    assert checkpoints.open_checkpoint(tmp_path / "checkpoint_3").detail == "heads apart"
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(tmp_path / "checkpoint_3")}}
    name = "decoder.layers_1.self_attention.out.kernel"
    if form is t5x_legacy:
        spec["path"] = f"target.{name}"
    else:
        base = {"driver": "ocdbt", "base": f"file://{tmp_path / 'checkpoint_3/state'}/"}
        spec["kvstore"] = {**base, "path": f"target.{name}/"}
    kernel = model.params["decoder"]["layers_1"]["self_attention"]["out"]["kernel"]
    np.testing.assert_array_equal(ts.open(spec).result().read().result(), kernel.reshape(2, 3, 8))


def test_a_stack_is_read_once(model_1_1, tmp_path, monkeypatch):
    as_t5x_writes(tmp_path / "checkpoint_7", scanned(model_1_1))
    reads = []
    true_aligned = arrays.aligned
    monkeypatch.setattr(arrays, "aligned", lambda *a: reads.append(1) or true_aligned(*a))
    checkpoints.load(tmp_path / "checkpoint_7")
    # Biases are read a layer at a time too, to be compared.
    count = len(jax.tree.leaves(scanned(model_1_1)))
    assert count <= len(reads) <= count + 2


def test_a_run_instead_of_a_step(model_1_1, tmp_path):
    for step in (9, 10):
        as_t5x_writes(tmp_path / f"run/checkpoint_{step}", model_1_1.params)
    with pytest.raises(
        SpecdecError,
        match=r"steps checkpoint_9, checkpoint_10; give one of them, as .*checkpoint_10",
    ):
        checkpoints.load(tmp_path / "run")


def test_a_lost_chunk_is_told_and_not_read_as_zeros(model_1_1, tmp_path):
    path = as_t5x_writes(tmp_path / "checkpoint_7", model_1_1.params)
    (path / "target.decoder.logits_dense.kernel/1.0").unlink()
    with pytest.raises(SpecdecError, match="logits_dense/kernel has 1 of its 2 chunk files"):
        checkpoints.load(path)
    shutil.rmtree(path / "target.decoder.logits_dense.kernel")
    with pytest.raises(SpecdecError, match="logits_dense/kernel cannot be opened"):
        checkpoints.load(path)


def test_a_short_chunk_is_told(model_1_1, tmp_path):
    path = as_t5x_writes(tmp_path / "checkpoint_7", model_1_1.params)
    chunk = path / "target.decoder.logits_dense.kernel/1.0"
    chunk.write_bytes(chunk.read_bytes()[:-20])
    with pytest.raises(SpecdecError, match="logits_dense/kernel cannot be read"):
        checkpoints.load(path)


def test_a_lost_database_file_is_told(model_1_1, tmp_path):
    path = as_orbax_writes(tmp_path / "checkpoint_7", model_1_1.params)
    for data in path.rglob("d/*"):
        data.unlink()
    with pytest.raises(SpecdecError, match="damaged or was copied in part"):
        checkpoints.load(path)


def test_a_damaged_index_is_told(model_1_1, tmp_path):
    path = as_t5x_writes(tmp_path / "checkpoint_7", model_1_1.params)
    index = path / "checkpoint"
    whole = index.read_bytes()
    for content in (b"", whole[:100], whole[:-1], b"\xc1"):
        index.write_bytes(content)
        with pytest.raises(SpecdecError, match="cut short or is not T5X's index"):
            checkpoints.load(path)
    index.write_bytes(b'model_checkpoint_path: "model.ckpt-1"')
    with pytest.raises(SpecdecError, match="TensorFlow checkpoint"):
        checkpoints.load(path)
    index.write_bytes(flax.serialization.msgpack_serialize({"a": 1}))
    with pytest.raises(SpecdecError, match=r"has no 'target' \(it has a\)"):
        checkpoints.load(path)


def test_an_index_cannot_lead_out_of_its_folder(model_1_1, tmp_path):
    path = as_t5x_writes(tmp_path / "checkpoint_7", model_1_1.params)
    content = flax.serialization.msgpack_restore((path / "checkpoint").read_bytes())
    entry = content["optimizer"]["target"]["token_embedder"]["embedding"]
    entry["kvstore"]["path"] = "../secret"
    (path / "checkpoint").write_bytes(flax.serialization.msgpack_serialize(content))
    with pytest.raises(SpecdecError, match="outside of the checkpoint"):
        checkpoints.load(path)


def test_another_architecture_is_told(tmp_path):
    params = {"transformer": {"wte": jnp.ones((4, 2))}}
    as_t5x_writes(tmp_path / "checkpoint_7", params)
    with pytest.raises(SpecdecError, match=r"not a T5: .*this has 1 arrays .transformer/wte"):
        checkpoints.load(tmp_path / "checkpoint_7")
    as_orbax_writes(tmp_path / "checkpoint_8", params)
    with pytest.raises(SpecdecError, match=r"not a T5's checkpoint: .*found .*wte"):
        checkpoints.load(tmp_path / "checkpoint_8")


def test_damaged_orbax_metadata_is_told(model_1_1, tmp_path):
    path = as_orbax_writes(tmp_path / "checkpoint_7", model_1_1.params)
    (path / "_METADATA").write_text(json.dumps({"tree_metadata": [1]}))
    with pytest.raises(SpecdecError, match="not Orbax's metadata"):
        checkpoints.load(path)


def test_missing_layers_are_listed(model_1_1, tmp_path):
    params = jax.tree.map(lambda x: x, model_1_1.params)
    del params["decoder"]["layers_1"]
    as_orbax_writes(tmp_path / "checkpoint_7", params)
    with pytest.raises(SpecdecError, match=r"missing \(14\):\n  decoder/layers_1/"):
        checkpoints.load(tmp_path / "checkpoint_7")


def test_t5x_wants_its_folder_name(tmp_path):
    bundle.save(tmp_path / "ours", random_t5(CONFIGS["1.1"]))
    opened = checkpoints.open_checkpoint(tmp_path / "ours")
    for form in (t5x_legacy, orbax_folder):
        with pytest.raises(SpecdecError, match=r"write to .*out/checkpoint_0"):
            form.write(tmp_path / "out", opened, dtype="float32")
