#!/usr/bin/env python3
r"""Train a draft in several ways that cost the same, and keep each as a model folder.

Needs what `specdec train` needs, and uses what it left in --run:

    scripts/compare_objectives.py --data build/data --run build/run --task ende --out build/variants
    specdec alphas --task ende --data build/data/descriptions_ende.test.tsv --leniences 1 \\
      --drafts build/variants/ende/* --out build/alphas_of_variants
"""

import argparse
import sys
from pathlib import Path

from specdec_jax import checkpoints
from specdec_jax.checkpoints import bundle
from specdec_jax.errors import told
from specdec_jax.training import pair, recipe
from specdec_jax.training.variants import VARIANTS, Comparison


@told
def main() -> int:
    """Train all variants."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    parser.add_argument("--run", type=Path, required=True, help="folder of `specdec train`")
    parser.add_argument("--task", choices=sorted(recipe.TASKS), required=True)
    parser.add_argument("--target", help="its shipped name or path (that of the task)")
    parser.add_argument("--draft", choices=sorted(recipe.DRAFTS), default="draft_large")
    parser.add_argument("--steps", type=int, default=1000, help="of each (1000)")
    parser.add_argument("--out", type=Path, required=True, help="gets TASK/VARIANT")
    flags = parser.parse_args()
    run, task = pair.Run(flags.data, flags.run), recipe.TASKS[flags.task]
    target = checkpoints.load(flags.target or f"{task.name}_target").model
    comparison = Comparison(run, task, target, flags.draft, flags.steps)
    for name in VARIANTS:
        folder = flags.out / task.name / name
        if folder.is_dir():
            continue
        draft = comparison.train(name)
        folder.parent.mkdir(parents=True, exist_ok=True)
        bundle.save(folder, draft, dtype="bfloat16", vocabulary=run.vocabulary().path)
        print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
