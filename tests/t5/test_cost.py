"""What a decoding step computes, compiles and allocates."""

import functools
import re

import jax
import jax.numpy as jnp
import pytest
from small_t5s import LAYOUTS, QUICK, ROWS, SLOTS, SOURCE, TOKENS, small, start

from specdec_jax.decoding import Options, autoregressive, pace, request, speculative
from specdec_jax.drafts import NGramDraft
from specdec_jax.t5.model import T5

WIDTH = SOURCE.shape[1]


def equations(jaxpr):
    """All equations of a program, those of its inner programs included."""
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def products(jaxpr):
    """Shapes of the operands of every matrix product."""
    found = (e for e in equations(jaxpr) if e.primitive.name == "dot_general")
    return [tuple(v.aval.shape for v in equation.invars) for equation in found]


def projections_of_source(found):
    """Products of a [.., features] matrix with every source token."""
    rows = ROWS * WIDTH
    return [shapes for shapes in found if any(rows in shape for shape in shapes)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_b51_a_step_projects_its_own_tokens_alone(layout):
    model = small("1.1", layout)
    asked = request(ROWS, key=jax.random.key(0), max_tokens=12)
    traced = autoregressive.trace(model, SOURCE, asked, Options(max_tokens=12))
    loops = [e for e in equations(traced.jaxpr.jaxpr) if e.primitive.name == "while"]
    in_loop = max((products(e.params["body_jaxpr"].jaxpr) for e in loops), key=len)
    whole = products(traced.jaxpr.jaxpr)
    # Self-attention 4 matrices and 2 products with the cache, cross-attention 2 and 2, the gated
    # feed-forward layer 3; 2 layers; the logits.
    assert len(in_loop) == 2 * (6 + 4 + 3) + 1
    assert projections_of_source(in_loop) == []
    assert sum(any(WIDTH in shape for shape in shapes) for shapes in in_loop) == 2 * 2
    # Before the loop: 4 + 3 in the encoder's layer, keys and values in the decoder's two.
    assert len(projections_of_source(whole)) == 7 + 2 * 2


def test_b50_extend_compiles_once_for_all_positions_and_tokens():
    model = small("1.1")
    traces = []

    @functools.partial(jax.jit, compiler_options=QUICK)
    def step(model, state, tokens, position):
        traces.append(tokens.shape)
        return T5.extend(model, state, tokens, position)

    state = start(model, SOURCE, SLOTS)
    for n, position in enumerate(([0, 0, 0], [3, 1, 7], [20, 0, 5])):
        at = jnp.asarray(position, jnp.int32)
        _, state = step(model, state, TOKENS[:, n : n + 1], at)
    other = jax.tree.map(lambda x: 2 * x, model)
    step(other, state, TOKENS[:, 5:6], jnp.asarray([1, 1, 1], jnp.int32))
    assert traces == [(ROWS, 1)]
    # The count is alive: a wider block is another program.
    step(model, state, TOKENS[:, :2], jnp.zeros(ROWS, jnp.int32))
    assert traces == [(ROWS, 1), (ROWS, 2)]


def memory_of(lowered):
    found = lowered.compile().memory_analysis()
    assert found is not None
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rows", [3, 1])
def test_b49_the_loop_holds_no_spare_caches(layout, rows):
    """All that it allocates, its own cache included, is one cache and little more."""
    # Heads as wide as real ones: beside them, scores and biases of a few tokens are small.
    model = small("1.1", layout, head_dim=64, num_decoder_layers=1)

    @jax.jit
    def decode(model, source):
        asked = request(rows, key=jax.random.key(0), max_tokens=1000)
        return autoregressive(model, source, asked, Options(max_tokens=1000))

    memory = memory_of(decode.lower(model, SOURCE[:rows]))
    state = jax.eval_shape(lambda: model.start(SOURCE[:rows], 1002))
    cache = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state.cache))
    assert cache < memory.temp_size_in_bytes < 1.1 * cache


def test_b49_choosing_gamma_copies_no_cache():
    """A conditional in place of the inner loops holds a second cache and copies it each round."""
    model = small("1.1", "feature_major", head_dim=64, num_decoder_layers=1)
    options = Options(max_tokens=1000, gamma=3, gammas=(0, 1, 3))

    @functools.partial(jax.jit, compiler_options=QUICK)
    def decode(model, source):
        costs = pace(options.gammas, c=0.1, v={4: 1.2})
        asked = request(1, key=jax.random.key(0), max_tokens=1000, pace=costs)
        return speculative(model, NGramDraft.uniform(23), source, asked, options)

    program = decode.lower(model, SOURCE[:1]).compile()
    cache = jax.eval_shape(lambda: model.start(SOURCE[:1], 1005)).cache
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache))
    memory = program.memory_analysis()
    assert memory is not None
    assert size < memory.temp_size_in_bytes < 1.25 * size
    shape = ",".join(map(str, cache[0].keys.shape))
    written, copied, where = set(), set(), ""
    for line in program.as_text().splitlines():
        if re.match(r"(ENTRY )?%\S+ .*\{$", line):
            where = line.split()[0]
        written |= {where} if f"= f32[{shape}]" in line else set()
        copied |= {where} if re.search(rf"= f32\[{shape}\]\S* copy\(", line) else set()
    assert len(written) > 3
    # Before the loop keys and values are one array of zeros; in it they are two.
    assert copied <= {"ENTRY"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_b49_a_donated_state_is_written_in_place(layout):
    model = small("1.1", layout, head_dim=64, num_decoder_layers=1)
    state = jax.eval_shape(lambda: model.start(SOURCE, 1000))
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    step = jax.jit(T5.extend, donate_argnums=1)
    memory = memory_of(step.lower(model, state, TOKENS[:, :4], jnp.zeros(ROWS, jnp.int32)))
    assert memory.alias_size_in_bytes >= size
    assert memory.temp_size_in_bytes < 0.5 * size
