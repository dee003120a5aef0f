"""Two checkpoints, written by T5X in either of its formats, restored into one tree."""

import functools

import jax
import numpy as np
import pytest
import tiny
from flax import core
from t5x import checkpoints as t5x_checkpoints
from t5x import partitioning, train_state, utils

from specdec_jax.errors import SpecdecError
from specdec_jax.t5x_plugin.checkpoints import SpeculativeCheckpointManager
from specdec_jax.t5x_plugin.models import DRAFT

STEPS = {"target": 1000, "draft": 2000}


def state_of(model, params=None):
    def create():
        return train_state.InferenceState.create(
            core.freeze(model.get_initial_variables(jax.random.key(0), tiny.SHAPES))
        )

    state = jax.eval_shape(create)
    return state if params is None else state.replace(params=core.freeze(params), step=np.int32(0))


@functools.cache
def partitioner():
    return partitioning.PjitPartitioner(num_partitions=1)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return the path of each model's checkpoint in each format."""
    root = tmp_path_factory.mktemp("checkpoints")
    joint = tiny.pair()
    models = {"target": tiny.params(), "draft": joint[DRAFT]}
    paths = {}
    for role, params in models.items():
        state = state_of(tiny.plain_model(), params).replace(step=np.int32(STEPS[role]))
        legacy = root / f"legacy_{role}"
        legacy.mkdir()
        t5x_checkpoints.Checkpointer(state, partitioner(), str(legacy)).save(state)
        orbax = root / f"orbax_{role}"
        orbax.mkdir()
        manager = t5x_checkpoints.OrbaxCheckpointManagerInterface(
            str(orbax), state, partitioner(), period=1
        )
        manager.save(state)
        manager.wait_until_finished()
        manager.close()
        for name, folder in (("legacy", legacy), ("orbax", orbax)):
            paths[name, role] = str(folder / f"checkpoint_{STEPS[role]}")
    return paths


def restore(target_path, draft_path, dtype=None):
    """Restore as T5X's infer does."""
    cls = functools.partial(SpeculativeCheckpointManager, draft_path=draft_path)
    config = utils.RestoreCheckpointConfig(
        path=target_path, mode="specific", dtype=dtype, checkpoint_manager_cls=cls
    )
    state = state_of(tiny.speculative_model())
    manager = utils.create_orbax_checkpoint_manager(
        restore_cfg=config, train_state=state, partitioner=partitioner(), model_dir=target_path
    )
    restored = utils.restore(manager, [target_path], config)
    manager.close()
    return restored


@pytest.mark.parametrize(
    "formats",
    [("legacy", "legacy"), ("orbax", "legacy"), ("legacy", "orbax"), ("orbax", "orbax")],
    ids="-".join,
)
def test_both_are_restored(saved, formats):
    state = restore(saved[formats[0], "target"], saved[formats[1], "draft"])
    found, wanted = core.unfreeze(state.params), tiny.pair()
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
    assert int(state.step) == STEPS["target"]


def test_the_dtype_is_for_both(saved):
    state = restore(saved["legacy", "target"], saved["legacy", "draft"], dtype="bfloat16")
    assert {x.dtype.name for x in jax.tree.leaves(state.params)} == {"bfloat16"}


def test_errors_name_the_model_and_the_setting(saved, tmp_path):
    target, draft = saved["legacy", "target"], saved["legacy", "draft"]
    folder = draft.rsplit("/", 1)[0]
    cases = [
        (target, None, "no path to the draft's checkpoint: set .*draft_path"),
        (target, str(tmp_path / "absent"), "no draft checkpoint at .*absent"),
        (target, folder, r"folder of checkpoints \(checkpoint_2000\).*draft's path"),
        (str(tmp_path / "absent"), draft, "no target checkpoint at .*RestoreCheckpointConfig.path"),
        (target.rsplit("/", 1)[0], draft, "target's path"),
    ]
    for target_path, draft_path, words in cases:
        with pytest.raises(SpecdecError, match=words):
            restore(target_path, draft_path)


def test_a_model_without_a_draft_is_refused(saved):
    with pytest.raises(SpecdecError, match="use it with SpeculativeEncoderDecoderModel"):
        SpeculativeCheckpointManager(
            saved["legacy", "target"], state_of(tiny.plain_model()), partitioner(), "anywhere"
        )
