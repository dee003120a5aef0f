"""The training loop: optax steps, a log, checkpoints, and resumption at the very next step."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from tqdm import tqdm

from specdec_jax.errors import SpecdecError
from specdec_jax.sampling.types import Array, Float
from specdec_jax.t5.config import T5Config
from specdec_jax.t5.layers import multiply
from specdec_jax.t5.network import Transformer
from specdec_jax.training import alignment, objectives
from specdec_jax.training.examples import Batch

Params = Any
Stream = Callable[[int], Batch]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Guide:
    """Which cross-attention head is taught a word alignment, and how strongly."""

    table: Float[Array, "V V"]
    """From `alignment.translation_table`."""
    layer: int = dataclasses.field(metadata={"static": True})
    head: int = dataclasses.field(default=0, metadata={"static": True})
    weight: float = dataclasses.field(default=0.3, metadata={"static": True})
    """Nats of alignment loss that count as one nat of the likelihood."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How long and how fast to learn.

    Attributes:
        steps: updates in all.
        rate: peak learning rate of AdamW.
        warmup: updates of linear warm-up; linear decay to a hundredth of `rate` follows.
        decay: AdamW's weight decay.
        clip: global norm of the gradient.
        smoothing: label smoothing of the cross-entropy, without a teacher.
        divergence: with a teacher, the distance to it that is minimised.
        hard: with a teacher, weight of the cross-entropy beside that distance.
        average: decay of the moving average of the parameters, which is what is evaluated and kept.
        seed: of dropout; the streams carry their own.
        evaluate_every: updates between two evaluations, each followed by a checkpoint.
    """

    steps: int
    rate: float = 1e-3
    warmup: int = 400
    decay: float = 0.01
    clip: float = 1.0
    smoothing: float = 0.0
    divergence: objectives.Divergence = "forward_kl"
    hard: float = 0.0
    average: float = 0.999
    seed: int = 0
    evaluate_every: int = 1000


def _optimizer(recipe: Recipe) -> optax.GradientTransformation:
    # At least one decay step, or the schedule of a very short run divides by zero.
    schedule = optax.join_schedules(
        [
            optax.linear_schedule(0.0, recipe.rate, recipe.warmup),
            optax.linear_schedule(
                recipe.rate, recipe.rate / 100, max(1, recipe.steps - recipe.warmup)
            ),
        ],
        [recipe.warmup],
    )
    return optax.chain(
        optax.clip_by_global_norm(recipe.clip),
        optax.adamw(schedule, b2=0.98, weight_decay=recipe.decay),
    )


def loss_of(
    params: Params,
    batch: Batch,
    key: Array | None,
    readout: Float[Array, "D V"] | None,
    guide: Guide | None,
    *,
    config: T5Config,
    recipe: Recipe,
) -> Float[Array, ""]:
    """Return the mean loss per target token; dropout is on when there is a key."""
    rngs = {} if key is None else {"dropout": key}
    tokens = (batch.source, objectives.shift_right(batch.target))
    network: Any = Transformer(config)
    logits, kept = network.apply(
        {"params": params},
        *tokens,
        deterministic=key is None,
        rngs=rngs,
        mutable=["intermediates"] if guide else [],
    )
    loss, count = objectives.cross_entropy(logits, batch.target, recipe.smoothing)
    if readout is not None:
        labels = multiply(batch.states.astype(jnp.float32), readout, "token_major")
        soft, _ = objectives.distance(logits, labels, batch.target, recipe.divergence)
        loss = soft + recipe.hard * loss
    if guide is not None:
        layer = kept["intermediates"]["decoder"][f"layers_{guide.layer}"]
        weights = layer["encoder_decoder_attention"]["weights"][0][:, guide.head]
        goal = alignment.posterior(guide.table, batch.source, batch.target)
        loss = loss + guide.weight * alignment.guidance(weights, goal, batch.target)
    return loss / count


def evaluate(params: Params, config: T5Config, batches: list[Batch]) -> float:
    """Return the mean negative log-likelihood in nats per target token, end tokens included."""
    nll, count = 0.0, 0.0
    for batch in batches:
        a, b = _sums(params, batch, config)
        nll, count = nll + float(a), count + float(b)
    return nll / count


@functools.partial(jax.jit, static_argnames="config")
def _sums(params: Params, batch: Batch, config: T5Config):
    logits: Any = Transformer(config).apply(
        {"params": params}, batch.source, objectives.shift_right(batch.target)
    )
    return objectives.cross_entropy(logits, batch.target)


def fit(
    config: T5Config,
    params: Params,
    stream: Stream,
    recipe: Recipe,
    run_dir: Path | str,
    *,
    validation: list[Batch],
    readout: Float[Array, "D V"] | None = None,
    guide: Guide | None = None,
    score: Callable[[Params], dict[str, float]] | None = None,
    progress: bool = True,
) -> Params:
    """Train, resuming from the newest checkpoint under `run_dir` when there is one.

    Args:
        config: of the model that learns.
        params: its initial parameters, unused when a checkpoint is found.
        stream: step -> batch.
        recipe: how long and how fast.
        run_dir: gets `checkpoints/` and `log.jsonl`, one line for each evaluation.
        validation: batches whose likelihood is logged.
        readout: makes the loss a distillation: `distil.readout` of the teacher whose states the
            batches carry.
        guide: adds the alignment loss of `specdec_jax.training.alignment`.
        score: more numbers for the log, from the averaged parameters.
        progress: whether to show a bar.

    Returns:
        The averaged parameters after the last step.

    Raises:
        SpecdecError: when the loss is not finite; the newest checkpoint is from before.
    """
    run_dir = Path(run_dir).resolve()
    run_dir.mkdir(parents=True, exist_ok=True)
    optimizer = _optimizer(recipe)
    # Copies, since an update gives its argument's memory to its result.
    state = {
        "params": jax.tree.map(jnp.copy, params),
        "average": jax.tree.map(jnp.copy, params),
        "optimizer": optimizer.init(params),
    }
    # A cheap counter-based generator: dropout masks need no cryptography, and threefry is a fifth
    # of a step on a CPU.
    root = jax.random.key(recipe.seed, impl="rbg")
    objective = jax.value_and_grad(functools.partial(loss_of, config=config, recipe=recipe))

    @functools.partial(jax.jit, donate_argnums=0)
    def update(state, readout, guide, batch, step):
        key = jax.random.fold_in(root, step)
        loss, grads = objective(state["params"], batch, key, readout, guide)
        changes, memory = optimizer.update(grads, state["optimizer"], state["params"])
        params = optax.apply_updates(state["params"], changes)
        # Debiased at the start, or the average would be the initial values for a thousand steps.
        count = jnp.asarray(step, jnp.float32)
        decay = jnp.minimum(recipe.average, (1.0 + count) / (10.0 + count))
        average = jax.tree.map(lambda a, p: decay * a + (1 - decay) * p, state["average"], params)
        return {"params": params, "average": average, "optimizer": memory}, loss

    options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
    with ocp.CheckpointManager(run_dir / "checkpoints", options=options) as manager:
        first = 0
        if (latest := manager.latest_step()) is not None:
            state = manager.restore(latest, args=ocp.args.StandardRestore(state))
            first = latest
        bar = tqdm(
            range(first, recipe.steps),
            initial=first,
            total=recipe.steps,
            desc=run_dir.name,
            disable=not progress,
            mininterval=5,
        )
        losses, tokens, began = [], 0, time.monotonic()
        for step in bar:
            batch = stream(step)
            tokens += int(np.count_nonzero(batch.source) + np.count_nonzero(batch.target))
            state, loss = update(state, readout, guide, batch, step)
            losses.append(loss)
            done = step + 1
            if done % recipe.evaluate_every and done != recipe.steps:
                continue
            train = float(jnp.mean(jnp.stack(losses)))
            if not np.isfinite(train):
                raise SpecdecError(
                    f"The loss is not finite between steps {done - len(losses)} and {done} of "
                    f"{run_dir}; lower the learning rate ({recipe.rate}) and run again: "
                    "training resumes from the checkpoint before."
                )
            entry = {
                "step": done,
                "train": train,
                "nll": evaluate(state["average"], config, validation),
                "tokens": tokens,
                "seconds": time.monotonic() - began,
                **(score(state["average"]) if score else {}),
            }
            manager.save(done, args=ocp.args.StandardSave(state))
            with (run_dir / "log.jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps(entry) + "\n")
            bar.set_postfix(train=f"{train:.3f}", nll=f"{entry['nll']:.3f}")
            losses, tokens, began = [], 0, time.monotonic()
    return state["average"]
