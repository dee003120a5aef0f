"""What is read from a program's text: a small one, in the form that the compiler prints."""

import pytest

from specdec_jax.aot import hlo
from specdec_jax.errors import SpecdecError

# Layouts, memory spaces (S), metadata and estimates as in a real program; the round reads a weight
# of 512 x 384 and a float32 one of 64 x 512, which was converted before the loop.
PROGRAM = """\
HloModule jit_decode, is_scheduled=true, entry_computation_layout={(bf16[512,384]{1,0:T(8,128)(2,1)})->s32[1]{0:T(128)}}

%add.clone (x: bf16[], y: bf16[]) -> bf16[] {
  %x = bf16[]{:T(256)} parameter(0)
  %y = bf16[]{:T(256)} parameter(1)
  ROOT %add.1 = bf16[]{:T(256)} add(%x, %y)
}

%fused_computation.1 (param_0.1: bf16[512,384]) -> bf16[384,512] {
  %param_0.1 = bf16[512,384]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %transpose.1 = bf16[384,512]{1,0:T(8,128)(2,1)} transpose(%param_0.1), dimensions={1,0}
}

%fused_computation.2 (param_0.2: bf16[384,512], param_1.2: bf16[1,512]) -> bf16[1,384] {
  %param_0.2 = bf16[384,512]{1,0:T(8,128)(2,1)} parameter(0)
  %param_1.2 = bf16[1,512]{1,0:T(2,128)(2,1)} parameter(1)
  ROOT %convolution.2 = bf16[1,384]{1,0:T(2,128)(2,1)} convolution(%param_1.2, %param_0.2), dim_labels=bf_oi->bf
}

%fused_computation.3 (param_0.3: f32[4,8032]) -> f32[1,8,2008] {
  %param_0.3 = f32[4,8032]{1,0:T(4,128)} parameter(0)
  %all-gather.9 = f32[8,8032]{1,0:T(4,128)} all-gather(%param_0.3), replica_groups={{0,1}}, dimensions={0}
  ROOT %slice.3 = f32[1,8,2008]{2,1,0:T(8,128)} slice(%all-gather.9), slice={[0:1], [0:8], [0:2008]}
}

%greedy (p: f32[1,96]) -> f32[1,96] {
  ROOT %p = f32[1,96]{1,0:T(1,128)} parameter(0)
}

%noisy (p.1: f32[1,96]) -> f32[1,96] {
  %p.1 = f32[1,96]{1,0:T(1,128)} parameter(0)
  ROOT %fusion.90 = f32[1,96]{1,0:T(1,128)} fusion(%p.1), kind=kLoop, calls=%add.clone, metadata={op_name="jit(decode)/while/body/draft/noise"}, backend_config={"estimated_cycles":"5000"}
}

%inner_body (q: (s32[], f32[1,96])) -> (s32[], f32[1,96]) {
  %q = (s32[]{:T(128)}, f32[1,96]{1,0:T(1,128)}) parameter(0)
  %all-reduce.3 = f32[1,96]{1,0:T(1,128)} all-reduce(%q), replica_groups={{0,1}}, to_apply=%add.clone, metadata={op_name="jit(decode)/while/body/top_p/while/body/reduce_sum"}, backend_config={"estimated_cycles":"7000"}
  ROOT %tuple.3 = (s32[]{:T(128)}, f32[1,96]{1,0:T(1,128)}) tuple(%q, %all-reduce.3)
}

%inner_condition (q.1: (s32[], f32[1,96])) -> pred[] {
  ROOT %lt.3 = pred[]{:T(512)} compare(%q.1, %q.1), direction=LT
}

%round (carry: (s32[1], bf16[512,384], f32[64,512], bf16[1,6,69,64])) -> (s32[1], bf16[512,384], f32[64,512], bf16[1,6,69,64]) {
  %carry = (s32[1]{0:T(128)}, bf16[512,384]{1,0:T(8,128)(2,1)}, f32[64,512]{1,0:T(8,128)}, /*index=3*/bf16[1,6,69,64]{2,3,1,0:T(8,128)(2,1)}) parameter(0)
  %weight = bf16[512,384]{1,0:T(8,128)(2,1)} get-tuple-element(%carry), index=1
  %copy.1 = bf16[512,384]{0,1:T(8,128)(2,1)} copy(%weight), metadata={op_name="jit(decode)/while/body/target/Transformer.extend/query/dot_general" stack_frame_id=5}, backend_config={"window_config":{"estimated_cycles":"100"}}
  %fusion.1 = bf16[384,512]{1,0:T(8,128)(2,1)} fusion(%weight), kind=kLoop, calls=%fused_computation.1, metadata={op_name="jit(decode)/while/body/target/Transformer.extend/key/dot_general"}, backend_config={"window_config":{"estimated_cycles":"200"}}
  %copy-start.1 = (bf16[512,384]{1,0:T(8,128)(2,1)S(1)}, bf16[512,384]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) copy-start(%weight)
  %copy-start.2 = (bf16[1,6,69,64]{2,3,1,0:T(8,128)(2,1)}, bf16[1,6,69,64]{2,3,1,0:T(8,128)(2,1)S(1)}, u32[]{:S(2)}) copy-start(%carry)
  %copy-done.1 = bf16[512,384]{1,0:T(8,128)(2,1)S(1)} copy-done(%copy-start.1)
  %copy.2 = bf16[1,6,69,64]{3,2,1,0:T(8,128)(2,1)} copy(%carry)
  %fusion.2 = bf16[1,384]{1,0:T(2,128)(2,1)S(1)} fusion(%fusion.1, %copy.1), kind=kOutput, calls=%fused_computation.2, metadata={op_name="jit(decode)/while/body/target/Transformer.extend/key/dot_general"}, backend_config={"window_config":{"estimated_cycles":"3000"}}
  %all-reduce.1 = bf16[1,2,512]{2,1,0:T(2,128)(2,1)S(1)} all-reduce(%fusion.2), channel_id=6, replica_groups=mesh['axis_0'=4,'axis_1'=1] {'axis_0'}, use_global_device_ids=true, to_apply=%add.clone, metadata={op_name="jit(decode)/while/body/draft/mlp/wo/dot_general"}
  %all-gather-start.1 = (f32[1,8032]{1,0:T(1,128)}, f32[4,8032]{1,0:T(4,128)S(1)}) all-gather-start(%all-reduce.1), replica_groups={{0,1,2,3}}, dimensions={0}
  %all-gather-done.1 = f32[4,8032]{1,0:T(4,128)S(1)} all-gather-done(%all-gather-start.1)
  %fusion.3 = f32[1,8,2008]{2,1,0:T(8,128)S(1)} fusion(%all-gather-done.1), kind=kCustom, calls=%fused_computation.3, metadata={op_name="jit(decode)/while/body/draft/logits_dense"}, backend_config={"estimated_cycles":"40"}
  %conditional.1 = f32[1,96]{1,0:T(1,128)} conditional(%carry, %fusion.3, %fusion.3), branch_computations={%greedy, %noisy}, metadata={op_name="jit(decode)/while/body/cond"}
  %while.2 = (s32[]{:T(128)}, f32[1,96]{1,0:T(1,128)}) while(%conditional.1), condition=%inner_condition, body=%inner_body
  %add.7 = s32[1]{0:T(128)} add(%carry, %carry), metadata={op_name="jit(decode)/while/body/add"}, backend_config={"estimated_cycles":"11"}
  ROOT %tuple.1 = (s32[1]{0:T(128)}, bf16[512,384]{1,0:T(8,128)(2,1)}, f32[64,512]{1,0:T(8,128)}, bf16[1,6,69,64]{2,3,1,0:T(8,128)(2,1)}) tuple(%add.7, %weight, %carry, %copy.2)
}

%running (carry.1: (s32[1], bf16[512,384], f32[64,512], bf16[1,6,69,64])) -> pred[] {
  ROOT %lt.1 = pred[]{:T(512)} compare(%carry.1, %carry.1), direction=LT
}

ENTRY %main (w: bf16[512,384]) -> s32[1] {
  %w = bf16[512,384]{1,0:T(8,128)(2,1)} parameter(0)
  %copy.9 = bf16[512,384]{0,1:T(8,128)(2,1)} copy(%w)
  %while.9 = (s32[]{:T(128)}, f32[1,96]{1,0:T(1,128)}) while(%w), condition=%inner_condition, body=%inner_body
  %while.1 = (s32[1]{0:T(128)}, bf16[512,384]{1,0:T(8,128)(2,1)}, f32[64,512]{1,0:T(8,128)}, /*index=3*/bf16[1,6,69,64]{2,3,1,0:T(8,128)(2,1)}) while(%copy.9), condition=%running, body=%round
  ROOT %out = s32[1]{0:T(128)} get-tuple-element(%while.1), index=0
}
"""  # noqa: E501
WEIGHT, CACHE = 512 * 384, 6 * 69 * 64


@pytest.fixture
def module():
    return hlo.parse(PROGRAM)


@pytest.fixture
def loop(module):
    return hlo.loop_of(module)


def test_the_loop_is_the_one_that_carries_the_weights(loop):
    assert loop.body == "round"
    assert [shape.dims for shape in loop.carry] == [(1,), (512, 384), (64, 512), (1, 6, 69, 64)]
    assert [shape.bytes for shape in loop.carry] == [4, 2 * WEIGHT, 4 * 64 * 512, 2 * CACHE]


def test_copies_of_weights_within_main_memory_are_found(module, loop):
    moved = hlo.moves(module, loop)
    # Not the prefetch to on-chip memory, nor what makes room in it, nor the product, nor what
    # the program does once.
    assert [(name, shape.elements) for name, shape in moved] == [
        ("copy.1", WEIGHT),
        ("fusion.1", WEIGHT),
        ("copy.2", CACHE),
    ]
    assert moved[0][1].bytes == 2 * WEIGHT


def test_a_round_without_them_has_none():
    # As with the layouts that the compiler chooses: what was copied is read as it lies.
    clean = "\n".join(
        line.replace("fusion(%fusion.1, %copy.1)", "fusion(%weight, %weight)")
        for line in PROGRAM.splitlines()
        if not line.startswith(("  %copy.1 ", "  %fusion.1 ", "  %copy.2 "))
    )
    module = hlo.parse(clean)
    assert hlo.moves(module, hlo.loop_of(module)) == []


def test_collectives_are_counted_where_they_hide(module, loop):
    assert hlo.collectives(module, loop) == {
        # One in the round, one in its inner loop; that of the program's other loop is none of it.
        "all-reduce": {"count": 2, "bytes": 2 * 2 * 512 + 4 * 96},
        # One started, of which the result counts; one inside of a fusion.
        "all-gather": {"count": 2, "bytes": 4 * 4 * 8032 + 4 * 8 * 8032},
    }


def test_cycles_are_added_by_model_and_branches_left_out(module, loop):
    found = hlo.cycles(module, loop, ("target", "draft"))
    assert found == {"target": 3300, "draft": 40, "rest": 11}


def test_weights_that_were_widened_before_the_loop_are_seen(loop):
    (wide,) = hlo.widened(loop, {64 * 512, WEIGHT})
    assert (wide.dtype, wide.dims) == ("f32", (64, 512))


def test_a_text_that_is_no_decode_is_told():
    with pytest.raises(SpecdecError, match="no HLO program"):
        hlo.parse("func.func public @main()")
    entry = PROGRAM[PROGRAM.index("ENTRY") :].splitlines()
    step = "\n".join(line for line in entry if " while(" not in line)
    with pytest.raises(SpecdecError, match="has no loop"):
        hlo.loop_of(hlo.parse(step))
