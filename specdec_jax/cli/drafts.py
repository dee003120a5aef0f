"""`specdec count`: a draft of n-grams, from text."""

from __future__ import annotations

import argparse
from pathlib import Path

from specdec_jax.cli.flags import OK, add, require_positive, target_flag
from specdec_jax.cli.inputs import DATA, public_name, read_columns, task_flag


def add_commands(commands) -> None:
    """Add the parsers of this module's commands."""
    summary = "Count n-grams of a target's outputs, or of references: a draft that costs nothing."
    flags = add(commands, "count", _run_count, summary)
    target_flag(flags)
    flags.add_argument("--input", type=Path, required=True, help=DATA)
    flags.add_argument(
        "--references",
        action="store_true",
        help="count the references, or plain lines as they are, and not the target's outputs",
    )
    flags.add_argument("--out", type=Path, required=True, help="file, for --draft")
    flags.add_argument("--order", type=int, default=2, help="1 is single tokens, 2 pairs, .. (2)")
    flags.add_argument("--keep", type=int, default=16, help="continuations of each context (16)")
    flags.add_argument("--temperature", type=float, default=0.0, help="of the outputs (0)")
    flags.add_argument("--max_tokens", type=int, default=128, help="of an output (128)")
    flags.add_argument("--batch_size", type=int, default=64, help="lines decoded together (64)")
    flags.add_argument("--seed", type=int, default=0, help="of all samples (0)")
    task_flag(flags)


def _run_count(arguments: argparse.Namespace) -> int:
    from specdec_jax.bench.outputs import outputs
    from specdec_jax.files import require_folder
    from specdec_jax.generate import Settings, load_pair
    from specdec_jax.text import prefix
    from specdec_jax.training import ngrams

    require_folder(arguments.out)
    require_positive(arguments, "order", "keep")
    words = prefix(arguments.task)
    way = Settings(
        gamma=0,
        **{n: getattr(arguments, n) for n in ("temperature", "max_tokens", "batch_size", "seed")},
    )
    lines, references = read_columns(arguments.input)
    pair = load_pair(arguments.target, None)
    end = pair.vocabulary.eos_id
    if arguments.references:
        spoken = lines if references is None else references
        texts = [[*pair.vocabulary.encode(line), end] for line in spoken]
    else:
        texts = [
            tokens[:length].tolist()
            for batch in outputs(pair, lines, way, prefix=words)
            for tokens, length in zip(batch.tokens, batch.lengths, strict=True)
            if length
        ]
    draft = ngrams.count_ngrams(
        texts, pair.vocabulary.size, order=arguments.order, keep=arguments.keep
    )
    notes = {
        "counted": "references" if arguments.references else "outputs of the target",
        "target": public_name(arguments.target),
        "texts": str(len(texts)),
        "tokens": str(sum(len(text) for text in texts)),
    }
    ngrams.save(arguments.out, draft, pair.vocabulary, notes)
    print(f"{arguments.out}: {draft.describe()}, of {notes['tokens']} tokens")
    return OK
