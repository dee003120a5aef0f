"""Restoring a target and a draft from two checkpoints, each as its model was saved."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath
from flax import core as flax_core
from t5x import checkpoints as t5x_checkpoints
from t5x import partitioning, train_state

from specdec_jax.errors import SpecdecError
from specdec_jax.t5x_plugin.models import DRAFT

_SETTING = "SpeculativeCheckpointManager.draft_path"


class SpeculativeCheckpointManager:
    """What `RestoreCheckpointConfig.checkpoint_manager_cls` is set to.

    T5X restores one checkpoint into one tree. This class lets T5X's own manager restore the target
    from the path that T5X gives and the draft from `draft_path`, each a legacy T5X or an Orbax
    checkpoint, and joins the two. It restores only: infer and eval save nothing.
    """

    def __init__(
        self,
        directory: str,
        train_state: train_state.TrainState,
        partitioner: partitioning.BasePartitioner,
        draft_path: str | None = None,
        **options: Any,
    ):
        """Make a manager for each model.

        Args:
            directory: of the target's checkpoint, from T5X.
            train_state: shapes of the joint tree, from T5X.
            partitioner: from T5X.
            draft_path: the draft's checkpoint, a `checkpoint_N` folder; bound in gin.
            **options: of T5X's manager.

        Raises:
            SpecdecError: no draft in the tree, no `draft_path`, or a path that is no checkpoint.
        """
        if DRAFT not in train_state.params:
            raise SpecdecError(
                "SpeculativeCheckpointManager restores a target and a draft, but the model has no "
                "draft: use it with SpeculativeEncoderDecoderModel."
            )
        if not draft_path:
            raise SpecdecError(
                f"There is no path to the draft's checkpoint: set {_SETTING} "
                "(DRAFT_CHECKPOINT_PATH in our gin files) to its checkpoint_N folder."
            )
        self._joint = train_state
        self._draft_path = checked_path(draft_path, "draft", _SETTING)
        self._target_path = checked_path(directory, "target", "RestoreCheckpointConfig.path")
        self._target = t5x_checkpoints.OrbaxCheckpointManagerInterface(
            directory=self._target_path,
            train_state=_target_part(train_state),
            partitioner=partitioner,
            **options,
        )
        options["dataset_iterator"] = None
        self._draft = t5x_checkpoints.OrbaxCheckpointManagerInterface(
            directory=self._draft_path,
            train_state=_draft_part(train_state),
            partitioner=partitioner,
            **options,
        )

    def restore(
        self,
        path: str,
        state_transformation_fns: Sequence[Any] = (),
        fallback_state: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> train_state.TrainState:
        """Restore both; transformations and the fallback are for the target."""
        checked_path(path, "target", "RestoreCheckpointConfig.path")
        if fallback_state is not None:
            fallback_state = _without_draft(fallback_state)
        target = self._target.restore(
            path=path,
            state_transformation_fns=state_transformation_fns,
            fallback_state=fallback_state,
            **options,
        )
        return self._join(target)

    def restore_from_tf_checkpoint(self, path: str, strict: bool = True) -> train_state.TrainState:
        """Restore the target from a Mesh TensorFlow checkpoint, and the draft from its own path."""
        return self._join(self._target.restore_from_tf_checkpoint(path, strict=strict))

    def wait_until_finished(self) -> None:
        """Do nothing: there is nothing to wait for."""

    def close(self) -> None:
        """Close both managers."""
        self._target.close()
        self._draft.close()

    def _join(self, target: train_state.TrainState) -> train_state.TrainState:
        draft = self._draft.restore(path=self._draft_path)
        params = {**target.params, DRAFT: flax_core.unfreeze(draft.params)}
        return target.replace(params=flax_core.freeze(params), params_axes=self._joint.params_axes)


def checked_path(path: str, role: str, setting: str) -> str:
    """Return the path of a checkpoint if it is one.

    Raises:
        SpecdecError: nothing is there, or a folder of checkpoints instead of one of them.
    """
    folder = epath.Path(os.fspath(path))
    if epath.Path(f"{folder}.index").exists():
        return str(folder)  # Mesh TensorFlow: the path is a prefix of files.
    if not folder.is_dir():
        raise SpecdecError(
            f"There is no {role} checkpoint at {folder}: set {setting} to a checkpoint_N folder."
        )
    inside = sorted(p.name for p in folder.glob("checkpoint_*") if p.is_dir())
    if inside:
        raise SpecdecError(
            f"{folder} is a folder of checkpoints ({', '.join(inside)}), and T5X does not pick the "
            f"latest here: set {setting}, the {role}'s path, to one of them."
        )
    return str(folder)


def _target_part(state: Any) -> Any:
    return state.replace(
        params=flax_core.freeze(_without_draft(state.params)),
        params_axes=flax_core.freeze(_without_draft(state.params_axes)),
    )


def _draft_part(state: Any) -> Any:
    return state.replace(
        params=flax_core.freeze(state.params[DRAFT]),
        params_axes=flax_core.freeze(state.params_axes[DRAFT]),
    )


def _without_draft(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if name != DRAFT}
