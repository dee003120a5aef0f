"""Model cards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from specdec_jax.t5 import T5
from specdec_jax.training import recipe

WHAT = {
    "ende": ("translates descriptions of Debian packages from English to German", "translator"),
    "synopsis": ("writes the one-line synopsis of a Debian package's description", "summarizer"),
}
SCORES = {
    "bleu": "BLEU, test split, greedy (sacrebleu)",
    "chrf": "chrF, test split, greedy (sacrebleu)",
    "rouge_l": "ROUGE-L, F measure with stemming, test split, greedy (rouge-score)",
}


def card(
    task: recipe.Task,
    name: str,
    model: T5,
    facts: dict[str, Any],
    samples: Sequence[tuple[str, str, str]],
) -> str:
    """Return a model's card.

    Args:
        task: of the pair.
        name: of the model, ``ende_target`` say.
        model: for its sizes.
        facts: from `ship`.
        samples: (source, reference, output of the target), shown in the target's card.
    """
    is_target = name.endswith("target")
    parameters = sum(leaf.size for leaf in jax.tree.leaves(model.params))
    does, noun = WHAT[task.name]
    role = "A target" if is_target else f"A draft of `{task.name}_target`"
    rows = [
        ("training pairs", f"{facts['train_pairs']} (`{facts['task']}`, split by source package)"),
        *(
            (f"pairs of a wider domain, for a part of the steps (`{corpus}`)", count)
            for corpus, count in facts.get("wider_pairs", {}).items()
        ),
        ("tokens seen, source and target", f"{facts['tokens'] / 1e6:.1f}M"),
        ("steps", facts["steps"]),
        *(
            ("of these, with the best of its own outputs beside the references", count)
            for count in [facts.get("steps_with_own_outputs")]
            if count
        ),
        ("hours, on one or two shared CPU cores", facts["hours"]),
        (
            "validation loss, nats per token",
            f"{facts['validation_nll']}" + ("" if is_target else " (on the target's own outputs)"),
        ),
        ("weights read by a decoder step", facts["decoder_step_weights"]),
    ]
    if is_target:
        rows += [(label, facts[key]) for key, label in SCORES.items() if key in facts]
    else:
        rows += [
            ("the same over the target's", facts["step_weights_over_target"]),
            ("alpha, temperature 0", facts["alpha_temperature_0"]),
            ("alpha, temperature 1", facts["alpha_temperature_1"]),
        ]
    rows.append(("test pairs", facts["test_pairs"]))
    lines = [
        f"# {name}",
        "",
        f"{role} that {does}: a T5 of {model.config.describe()}, {parameters / 1e6:.2f}M "
        "parameters, bfloat16, trained from scratch on CPU cores.",
        "",
        "It knows one domain, and a small model's share of that. It exists so that speculative "
        "decoding can be tried, tested and measured on real text without downloading anything; it "
        f"is no {noun} for other text.",
        "",
        "| fact | value |",
        "|---|---|",
        *(f"| {label} | {value} |" for label, value in rows),
        "",
        "Made by `scripts/train_models.sh`; the recipe is `specdec_jax/training/recipe.py`. "
        + (
            "Alphas are in the cards of its drafts."
            if is_target
            else (
                "It began as a part of the target (`training/initial.py`). "
                if name.removeprefix(f"{task.name}_") in recipe.INHERITED
                else ""
            )
            + "Distilled from the target (forward KL, plus half the cross-entropy) on the "
            "target's own outputs, greedy and drawn at temperature 1. Alpha is the rate of "
            "accepted guesses on prefixes that the target wrote."
        ),
        "",
        "Data: descriptions of Debian packages"
        + (
            " and their German translations by the Debian description translation project"
            if task.name == "ende"
            else " and their synopses"
        )
        + (
            "; the wider domain adds manual pages, documents and message catalogs of Debian's "
            "packages (MPL-2.0 and CC-BY-SA-3.0 among their licences)"
            if "wider_pairs" in facts
            else ""
        )
        + ". The texts are under the terms of their packages, mostly GPL-2+ and GPL-3+; the "
        "weights are offered under this project's licence.",
    ]
    if is_target:
        lines += ["", f"## {len(samples)} random test texts, good and bad", ""]
        for source, reference, output in samples:
            lines += [f"- {source}", f"  - reference: {reference}", f"  - output: {output}"]
    return "\n".join(lines) + "\n"
