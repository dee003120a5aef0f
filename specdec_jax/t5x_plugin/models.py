"""The model class that T5X's infer, eval and train work with: a target, and a draft beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import flax.core as flax_core
import jax
import jax.numpy as jnp
import seqio
from absl import logging
from flax import linen as nn
from t5x import models, optimizers

from specdec_jax.errors import SpecdecError
from specdec_jax.sampling.types import Array
from specdec_jax.t5x_plugin import checks
from specdec_jax.t5x_plugin.decoding import speculative_sample
from specdec_jax.t5x_plugin.placement import must_replicate, placed, replicate_axes
from specdec_jax.t5x_plugin.steering import LogitCallback

DRAFT = "draft"
"""Where the draft's parameters are in the tree; the target's have their usual names around it."""


class SpeculativeEncoderDecoderModel(models.EncoderDecoderModel):
    """T5X's encoder-decoder model, decoded with the help of a draft.

    Training, scoring and metrics are those of the target and never see the draft. Every option of
    decoding is an argument here, not of a function that a gin file has to name as well: a binding
    cannot be lost without an error.
    """

    def __init__(
        self,
        module: nn.Module,
        draft_module: nn.Module,
        input_vocabulary: seqio.Vocabulary,
        output_vocabulary: seqio.Vocabulary,
        optimizer_def: optimizers.OptimizerDefType | None = None,
        *,
        gamma: int = 4,
        rule: str = "rejection",
        temperature: float = 0.0,
        topk: int = 0,
        topp: float = 0.0,
        max_decode_steps: int | None = None,
        max_decode_steps_hard_limit: int | None = None,
        rescale_log_probs: bool = True,
        logit_callback_fn: LogitCallback | None = None,
        lenience: float = 1.0,
        prompt_with_targets: bool = False,
        replicate_draft: bool | None = None,
        draft_vocabulary: seqio.Vocabulary | None = None,
        decode_fn: Callable | None = None,
        feature_converter_cls: Callable[..., seqio.FeatureConverter] | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        loss_normalizing_factor: Any = None,
        default_decoder_params: models.DecoderParams | None = None,
    ):
        """Join a target and a draft.

        Args:
            module: the target: `network.Transformer`, or T5X's own T5.
            draft_module: the draft, likewise.
            input_vocabulary: of the sources.
            output_vocabulary: of both models' outputs.
            optimizer_def: for training the target.
            gamma: guesses of a round, 0 for none.
            rule: "rejection", "block" or "coupled", see `decoding.speculative_sample`.
            temperature: 0 is greedy, and the default.
            topk: 0 is off, and the default; T5X's is 1, which is greedy at every temperature.
            topp: 0 is off.
            max_decode_steps: most tokens behind the prompt.
            max_decode_steps_hard_limit: upper bound of `max_decode_steps`.
            rescale_log_probs: scores by the distribution that was sampled, not the model's own.
            logit_callback_fn: see `steering.Steered`.
            lenience: below 1 the outputs are no longer the target's.
            prompt_with_targets: begin every output with the target's tokens; T5X's infer has no
                argument for it.
            replicate_draft: keep the whole draft on every device; None decides by its heads.
            draft_vocabulary: given, it is compared with `output_vocabulary`.
            decode_fn: must stay None; only there for its error.
            feature_converter_cls: as in T5X.
            label_smoothing: as in T5X.
            z_loss: as in T5X.
            loss_normalizing_factor: as in T5X.
            default_decoder_params: `num_decodes` and `return_all_decodes`.

        Raises:
            SpecdecError: for options that cannot be meant.
        """
        if decode_fn is not None:
            name = getattr(decode_fn, "__name__", None) or getattr(decode_fn, "func", decode_fn)
            raise SpecdecError(
                f"decode_fn is {name}, but a draft cannot help a function that asks for one token "
                "at a time: leave decode_fn out and set temperature, topk and topp of this class, "
                "or decode with t5x.models.EncoderDecoderModel (runs/infer_baseline.gin). Beam "
                "search has no speculative form yet."
            )
        checks.check_options(gamma, rule, lenience)
        self.draft_module = draft_module
        self._target, self._draft = checks.described(module), checks.described(draft_module)
        checks.check_sizes(self._target, self._draft)
        self._draft_vocabulary = draft_vocabulary
        self._options = {
            "gamma": gamma,
            "rule": rule,
            "lenience": lenience,
            "temperature": temperature,
            "topk": topk,
            "topp": topp,
            "max_decode_steps": max_decode_steps,
            "max_decode_steps_hard_limit": max_decode_steps_hard_limit,
            "rescale_log_probs": rescale_log_probs,
            "logit_callback_fn": logit_callback_fn,
        }
        self._prompt_with_targets = prompt_with_targets
        heads = self._draft.config.num_heads
        self._replicated = must_replicate(heads) if replicate_draft is None else replicate_draft
        if self._replicated and jax.device_count() > 1:
            logging.info(
                "The draft is replicated on all devices: its %d heads %s.",
                heads,
                "may not divide the mesh" if replicate_draft is None else "could be divided",
            )
        super().__init__(
            module=module,
            input_vocabulary=input_vocabulary,
            output_vocabulary=output_vocabulary,
            optimizer_def=optimizer_def,
            feature_converter_cls=feature_converter_cls,
            label_smoothing=label_smoothing,
            z_loss=z_loss,
            loss_normalizing_factor=loss_normalizing_factor,
            default_decoder_params=default_decoder_params,
        )

    def get_initial_variables(
        self,
        rng: Array,
        input_shapes: Mapping[str, Any],
        input_types: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the target's variables, with the draft's parameters and axes under `draft`."""
        target = flax_core.unfreeze(super().get_initial_variables(rng, input_shapes, input_types))
        # The same method on the draft's module: T5X's call of `init` is its own affair.
        twin = models.EncoderDecoderModel(
            self.draft_module, self.input_vocabulary, self.output_vocabulary, None
        )
        draft = flax_core.unfreeze(twin.get_initial_variables(rng, input_shapes, input_types))
        axes = draft["params_axes"]
        target["params"][DRAFT] = draft["params"]
        target["params_axes"][DRAFT] = replicate_axes(axes) if self._replicated else axes
        return flax_core.freeze(target)

    def predict_batch_with_aux(
        self,
        params: Any,
        batch: Mapping[str, Array],
        rng: Array | None = None,
        decoder_params: MutableMapping[str, Any] | None = None,
        return_all_decodes: bool | None = None,
        num_decodes: int | None = None,
        prompt_with_targets: bool | None = None,
    ) -> tuple[Array, dict[str, Array]]:
        """Decode a batch; see T5X's method for the arguments.

        Args:
            params: the target's, with the draft's under `draft`.
            batch: with `encoder_input_tokens` and `decoder_input_tokens`.
            rng: key of the noise.
            decoder_params: options for this call alone (`checks.PER_CALL`); values may be traced,
                and the temperature may be one for each row.
            return_all_decodes: the class's default when None.
            num_decodes: likewise.
            prompt_with_targets: likewise.

        Returns:
            Tokens int32 [B, L] of the best decode of each row, and by name, [B] each: `scores`,
            `target_runs`, `drafted`, `accepted`, `mean_accepted_length`. With `return_all_decodes`,
            [B, D, L] and [B, D], in the order of increasing score.

        Raises:
            SpecdecError: for an unknown key of decoder_params, or two keys of noise.
        """
        defaults = self._default_decoder_params
        if return_all_decodes is None:
            return_all_decodes = defaults.return_all_decodes
        if num_decodes is None:
            num_decodes = defaults.num_decodes
        if prompt_with_targets is None:
            prompt_with_targets = self._prompt_with_targets
        options = {**self._options, **checks.checked(decoder_params, self._options, rng)}
        options.setdefault("eos_id", self.output_vocabulary.eos_id or 1)
        if rng is not None:
            options["decode_rng"] = rng

        inputs = batch["decoder_input_tokens"]
        # Without its end token, which would end the row where the prompt does.
        prompt = inputs * (inputs != options["eos_id"]).astype(inputs.dtype)
        # Not in the constructor: a vocabulary may be a file far away, which only decoding reads.
        checks.check_vocabularies(
            self._target, self._draft, self.output_vocabulary, self._draft_vocabulary
        )
        target, draft = self._split(params)
        if draft is None:
            raise SpecdecError(
                f"The parameters hold no draft (nothing under {DRAFT!r}): restore them with "
                "SpeculativeCheckpointManager, or from a merged checkpoint."
            )
        vocab_size = self._target.vocab_size
        samples = speculative_sample(
            prompt if prompt_with_targets else jnp.zeros_like(inputs),
            placed(target, self._target, vocab_size=vocab_size, repeats=num_decodes),
            placed(
                draft,
                self._draft,
                vocab_size=vocab_size,
                repeats=num_decodes,
                replicated=self._replicated,
            ),
            batch["encoder_input_tokens"],
            num_decodes=num_decodes,
            prompted=bool(prompt_with_targets),
            **options,
        )
        aux = {"scores": samples.scores, **samples.aux}
        if return_all_decodes:
            return samples.decodes, aux
        return samples.decodes[:, -1], {name: values[:, -1] for name, values in aux.items()}

    def _compute_logits(self, params: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        return super()._compute_logits(self._split(params)[0], batch, *args, **kwargs)

    @staticmethod
    def _split(params: Any) -> tuple[dict[str, Any], Any]:
        target = dict(params)
        draft = target.pop(DRAFT, None)
        return target, draft
