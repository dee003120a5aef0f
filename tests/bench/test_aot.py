"""Compiling for chips that are not at hand: memory, bytes, records; the TPU itself with libtpu."""

import dataclasses
import importlib.util
import json

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from specdec_jax.aot import analysis, hlo, program, report, roofline, sweep, topology
from specdec_jax.bench import devices
from specdec_jax.bench.memory import memory_of
from specdec_jax.decoding import Options
from specdec_jax.errors import SpecdecError
from specdec_jax.t5 import T5Config, preset

TARGET = T5Config(
    vocab_size=96,
    emb_dim=40,
    num_heads=4,
    head_dim=8,
    mlp_dim=56,
    num_encoder_layers=1,
    num_decoder_layers=1,
    mlp_activations=("gelu", "linear"),
)
DRAFT = dataclasses.replace(TARGET, emb_dim=24, mlp_dim=28)
WHAT = program.Decode(TARGET, DRAFT, Options(max_tokens=3, gamma=1), source_length=5)
CASE = analysis.Case(topology.topology("v4:1x1x1"), "xxl", "small", 1)


def one(chips=1):
    return AbstractMesh((1, chips), ("data", "model"))


def parameter_bytes(*configs):
    shapes = jax.tree.leaves([program.parameters(config) for config in configs])
    assert {leaf.dtype.name for leaf in shapes} == {"bfloat16"}
    return sum(2 * leaf.size for leaf in shapes)


@pytest.fixture(scope="module")
def host():
    return Mesh(np.array(jax.devices("cpu")[:1]).reshape(1, 1), ("data", "model"))


@pytest.fixture(scope="module")
def compiled(host):
    return program.compile_decode(WHAT, host)


def test_the_whole_decode_compiles_from_shapes(compiled, host):
    found = analysis.record(CASE, WHAT, host, compiled)
    memory, loop = found["hbm_bytes_per_chip"], found["loop"]
    assert memory["parameters"] == parameter_bytes(TARGET, DRAFT)
    # Beside the parameters come a source, a request, and nothing of a cache's size.
    assert 0 <= memory["arguments"] - memory["parameters"] < 200
    # Of each model a cache of 1 + 3 + 1 + 1 slots and 5 of the source, keys and values.
    assert memory["caches"] == 2 * 2 * 4 * 8 * (6 + 5) * 2
    assert memory["arguments"] < memory["peak"]
    assert memory["temporaries"] > memory["caches"]
    assert memory["fits"]
    assert loop["collective_count"] == 0
    # This back end multiplies in float32: it widens the weights, and not in every round.
    matrices = [
        leaf
        for config in (TARGET, DRAFT)
        for leaf in roofline.leaves(config, one())
        if leaf.is_matrix and roofline.read_by_a_step(config, leaf)
    ]
    assert loop["weight_copies"] == 0
    assert loop["widened_weight_bytes"] >= 4 * sum(leaf.elements for leaf in matrices) / 2


def test_a_state_that_is_given_away_is_written_in_place(host):
    memory = donated_step(host)
    assert memory.aliased == 2 * 2 * 4 * 8 * 6 * 1


def donated_step(mesh):
    """Compile one call of the target whose caches are donated; what it aliases."""
    model = program.model(TARGET, mesh)
    tokens, block = (jax.ShapeDtypeStruct((1, size), np.int32) for size in (5, 2))
    position = jax.ShapeDtypeStruct((1,), np.int32)
    state = jax.eval_shape(lambda m, source: m.start(source, 6), model, tokens)
    where = NamedSharding(mesh, PartitionSpec("data", "model"))
    layouts = program.formats(TARGET, mesh, automatic=True)
    laid = dataclasses.replace(model, model=dataclasses.replace(model.model, params=layouts))

    def step(cache, model, rest, tokens, position):
        _, after = model.extend(rest._replace(cache=cache), tokens, position)
        return after.cache

    jitted = jax.jit(step, donate_argnums=0, in_shardings=(where, laid, None, None, None))
    lowered = jitted.lower(state.cache, model, state, block, position)
    return memory_of(lowered.compile().memory_analysis())


@pytest.mark.parametrize("name", ["xxl", "t5_1_0_base"])
def test_a_step_reads_the_decoder_s_weights(name):
    config = preset(name)
    call = roofline.call(config, one(), tokens=1, batch=1, source_length=7, length=9)
    norms = (3 * config.num_decoder_layers + 1) * config.emb_dim
    assert call.weight_bytes == 2 * (config.decoder_step_weights + norms)
    keys = config.num_heads * config.head_dim * (7 + 9)
    assert call.cache_bytes == 2 * 2 * keys * config.num_decoder_layers
    assert call.flops == 2 * config.decoder_step_weights


def test_four_chips_hold_a_fourth_each_but_for_what_does_not_divide():
    base, small = preset("base"), preset("small")
    size = {"tokens": 1, "batch": 1, "source_length": 8, "length": 8}
    whole, part = (roofline.call(base, one(chips), **size) for chips in (1, 4))
    norms = 2 * (3 * 12 + 1) * 768
    assert part.weight_bytes - norms == (whole.weight_bytes - norms) / 4
    assert part.cache_bytes == whole.cache_bytes / 4
    # Six heads stay whole on four chips.
    assert roofline.call(small, one(4), **size).cache_bytes == roofline.cache_bytes(
        small, one(), batch=1, slots=16
    )


@pytest.mark.parametrize(("size", "c"), [("small", 0.02), ("base", 0.04), ("large", 0.11)])
def test_one_v4_gives_the_paper_s_c(size, c):
    where = topology.topology("v4:1x1x1")
    case = analysis.Case(where, "xxl", size, 7)
    found = analysis.times(case, case.decode(), one())
    assert found["costs"]["c"] == pytest.approx(c, abs=0.006)
    # A block of eight tokens is still bound by reading.
    assert found["costs"]["v"] == pytest.approx(1, abs=0.001)
    weights = 2 * preset("xxl").decoder_step_weights
    known = devices.estimate_costs(
        1.0, target_bytes=weights, device="tpu-v4", draft_layers=1, target_layers=24
    )
    assert found["costs"]["step_seconds"] == pytest.approx(known["target_step"], rel=0.03)
    ende = found["table2"][0]
    assert (ende["task"], ende["temperature"], ende["paper_emp"]) == (
        "EnDe", 0, {"small": 3.4, "base": 2.8, "large": 1.7}[size],
    )  # fmt: skip
    assert ende["predicted_speedup"] == pytest.approx(ende["paper_exp"], rel=0.06)


def test_a_large_batch_is_bound_by_arithmetic():
    where = topology.topology("v5e:1x1")
    size = {"tokens": 8, "source_length": 8, "length": 8}
    few, many = (roofline.call(preset("base"), one(), batch=b, **size) for b in (1, 512))
    assert roofline.seconds(few, where, layer_seconds=0.0) == few.bytes / where.chip.bandwidth
    assert roofline.seconds(many, where, layer_seconds=0.0) == many.flops / where.chip.flops
    assert roofline.seconds(few, where, layer_seconds=1.0) - few.bytes / where.chip.bandwidth == 12


def test_what_needs_no_compiler_is_told_without_one():
    case = analysis.Case(topology.topology("v5e:1x1"), "xxl", "small", 7)
    found = analysis.of_shapes(case)
    memory = found["hbm_bytes_per_chip"]
    # The published numbers of parameters.
    assert memory["parameters"] == 2 * (11_135_332_352 + 76_961_152)
    # 22 GB have no room on a chip of 17; that they have on four is for the compiler to say.
    assert (found["compiled"], found["loop"], memory["fits"]) == (False, None, False)
    four = analysis.of_shapes(dataclasses.replace(case, where=topology.topology("v5e:2x2")))
    assert four["hbm_bytes_per_chip"]["fits"] is None
    assert four["costs"]["step_seconds"] < found["costs"]["step_seconds"]
    assert "not yet" in report.page([found, four], notes="")


REFUSED = program.OutOfMemory(used=25_000_000_000, limit=16_800_000_000)


@pytest.fixture
def records(compiled, host):
    """A pair, its target alone, and what did not fit."""
    pair = analysis.record(CASE, WHAT, host, compiled)
    pair["gamma"] = 7
    calls = {"costs", "costs_of_bytes_alone", "draft_bytes", "verify_bytes", "table2"}
    plain = {name: pair[name] for name in pair.keys() - calls} | {"draft": None, "gamma": 0}
    refused = analysis.record(CASE, WHAT, host, REFUSED) | {"topology": "v5e:1x1"}
    return [plain, pair, refused]


def test_a_row_has_what_a_reader_compares(records):
    plain, pair, refused = report.summary(records)
    for row in (plain, pair, refused):
        assert {
            *("topology", "chips", "target", "draft", "gamma", "hbm_bytes_per_chip", "hbm_limit"),
            *("fits", "weight_copies", "step_seconds", "verify_seconds", "draft_seconds"),
            *("c", "v", "predicted_speedup"),
        } <= row.keys()
    assert (plain["draft"], plain["c"], plain["predicted_speedup"]) == (None, None, None)
    assert pair["predicted_speedup"] == records[1]["table2"][0]["predicted_speedup"]
    assert (refused["fits"], refused["hbm_bytes_per_chip"]) == (False, 25_000_000_000)
    assert refused["weight_copies"] is None


def test_the_page_shows_every_program_and_the_paper_s_table(records):
    page = report.page(records, notes="Nothing here was measured.")
    assert page.startswith("Nothing here was measured.\n\n## Memory")
    assert "| v5e:1x1 | small | 1 | 0.00 | 0.00 |  | 25.00 | 34.36 | no | refused |" in page
    for row in records[1]["table2"]:
        ours = f"{row['predicted_speedup']:.2f}"
        cells = (row["task"], row["draft"], row["temperature"], row["gamma"], row["alpha"])
        start = " | ".join(map(str, (*cells, row["paper_exp"], row["paper_emp"], ours)))
        assert f"| {start} |" in page


def test_a_sweep_goes_on_where_it_stopped(tmp_path, monkeypatch, records):
    done = []

    def run(case, say):
        if len(done) == 1:
            raise KeyboardInterrupt
        done.append(case.name)
        return records[1]

    monkeypatch.setattr(sweep, "run", run)
    monkeypatch.setattr(sweep, "require_libtpu", lambda: None)
    cases = [CASE, dataclasses.replace(CASE, draft=None)]
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep(cases, tmp_path, lambda line: None)
    # What was made before the interruption is whole.
    assert len(json.loads((tmp_path / "summary.json").read_text())) == 1
    monkeypatch.setattr(sweep, "run", lambda case, say: done.append(case.name) or records[0])
    assert len(sweep.sweep(cases, tmp_path, lambda line: None)) == 2
    assert done == ["v4_1x1x1_xxl_small_gamma1", "v4_1x1x1_xxl_plain"]
    page = (tmp_path / "README.md").read_text()
    assert "none (plain)" in page
    assert "| v5p:1x1x1 | 1 | 256 |" in page
    assert len(json.loads((tmp_path / "serving.json").read_text())) > 50
    monkeypatch.setattr(sweep, "require_libtpu", lambda: pytest.fail("nothing is missing"))
    assert len(sweep.sweep(cases, tmp_path, lambda line: None, shapes_only=True)) == 2
    (tmp_path / "records" / "v4_1x1x1_xxl_plain.json").write_text("{")
    with pytest.raises(SpecdecError, match=r"plain.json is not a JSON record .* remove it"):
        sweep.sweep(cases, tmp_path, lambda line: None)


def test_what_distinguishes_programs_distinguishes_their_files():
    others = [
        *(dataclasses.replace(CASE, **{name: 3}) for name in ("gamma", "batch", "max_tokens")),
        dataclasses.replace(CASE, source_length=3),
        dataclasses.replace(CASE, automatic_layouts=False),
        dataclasses.replace(CASE, where=topology.topology("v5e:2x4")),
    ]
    assert len({case.name for case in [CASE, *others]}) == 7


def test_a_refusal_is_told_from_a_mistake():
    def refusing(message):
        def compile():
            raise jax.errors.JaxRuntimeError(message)

        return compile

    used = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 23.29G of 15.75G hbm."
    found = program.compiled_or_refused(refusing(used))
    assert found == program.OutOfMemory(int(23.29 * 2**30), int(15.75 * 2**30))
    assert program.compiled_or_refused(refusing("RESOURCE_EXHAUSTED: big")) == (0, 0)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        program.compiled_or_refused(refusing("INTERNAL: a bug"))


def test_a_missing_compiler_and_an_unknown_topology_are_told(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SpecdecError, match=r"libtpu.* is not installed .*'specdec-jax\[aot\]'"):
        topology.make_mesh(CASE.where)
    with pytest.raises(SpecdecError, match=r"No topology is called 'v4:9'; there are v4:1x1x1, v4"):
        topology.topology("v4:9")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra aot")
def test_a_tpu_s_program_copies_no_weights_and_writes_caches_in_place():
    """On four chips; sizes such that no cache has the size of a matrix."""
    where = topology.topology("v5e:2x2")
    mesh = topology.make_mesh(where)
    sizes = {"emb_dim": 256, "head_dim": 64, "mlp_dim": 640, "vocab_size": 1024}
    what = dataclasses.replace(
        WHAT,
        target=dataclasses.replace(TARGET, **sizes),
        draft=dataclasses.replace(TARGET, **sizes | {"emb_dim": 128, "num_heads": 2}),
        source_length=24,
    )
    made = program.compile_decode(what, mesh)
    found = analysis.record(dataclasses.replace(CASE, where=where), what, mesh, made)
    loop = found["loop"]
    assert (loop["weight_copies"], loop["cache_copies"]) == (0, 0)
    assert loop["widened_weight_bytes"] == 0
    assert loop["collectives"]["all-reduce"]["count"] >= 3
    assert loop["compiler_cycles"]["target"] > 0
    assert loop["compiler_cycles"]["draft"] > 0
    assert found["hbm_bytes_per_chip"]["arguments"] >= found["hbm_bytes_per_chip"]["parameters"]
    body = hlo.loop_of(hlo.parse(made.text))
    assert sum(shape.bytes for shape in body.carry) > 0
    assert donated_step(mesh).aliased > 0
