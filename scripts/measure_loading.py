#!/usr/bin/env python3
"""Measure peak memory and time of loading a T5 of a preset's sizes in bfloat16.

    python scripts/measure_loading.py xl out/xl results/checkpoints/xl.json

Writes a checkpoint of each format under the folder, one after the other, and removes it. Loading is
compared with reading the same bytes into memory and keeping them, each in a fresh process, in turn;
"cold" is after the file system was told to forget them. The peak is of the whole process.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np

from specdec_jax.checkpoints import convert, tensors, tree
from specdec_jax.t5.config import preset

READ = """
import sys, time; import numpy as np; kept = []; start = time.perf_counter()
for name in sys.argv[2:]:
    with open(name, "rb", buffering=0) as file:
        while True:
            kept.append(np.empty(2**24, np.uint8))
            if not file.readinto(kept[-1].data): break
print(time.perf_counter() - start, 0)"""
LOAD = """
import sys, time, jax, jax.numpy as jnp
from specdec_jax import checkpoints
from specdec_jax.checkpoints import bundle
jnp.zeros(3).block_until_ready(); start = time.perf_counter()
loaded = checkpoints.load(sys.argv[1], dtype="bfloat16")
jax.block_until_ready(loaded.model.params); seconds = time.perf_counter() - start
print(seconds, *[x.split()[1] for x in open("/proc/self/status") if x.startswith("VmHWM")])"""
FORMATS = {"specdec": "m", "hf": "m", "t5x": "checkpoint_0", "orbax": "checkpoint_0"}
sizes, folder, record = preset(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
# Random bits, the same few over and over: writing is quick and loading cannot tell.
pool = np.random.default_rng(0).normal(size=999_983).astype("bfloat16")
made = {
    name: tensors.Tensor(shape, pool.dtype, lambda shape=shape: np.resize(pool, shape))
    for name, shape in tree.shapes(sizes).items()
}
source = tensors.Checkpoint("specdec", folder, sizes, made, sizes.vocab_size)
size = 2 * sum(tensor.size for tensor in made.values())
found = {"sizes": sizes.describe(), "bytes": size, "formats": {}}
for form in sys.argv[4:] or FORMATS:
    path = folder / FORMATS[form]
    convert.WRITERS[form](path, source, dtype="bfloat16")
    files = [str(p) for p in sorted(path.rglob("*")) if p.is_file()]
    peak, times = 0, {}
    for what in ("cold", "warm", "warm", "cold"):
        for name, code in (("read", READ), ("load", LOAD)):
            for file in files if what == "cold" else ():
                with open(file, "rb") as opened:
                    os.fsync(opened.fileno())
                    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            run = subprocess.run(
                [sys.executable, "-c", code, str(path), *files], stdout=-1, check=True
            )
            seconds, kilobytes = map(float, run.stdout.split())
            times.setdefault(f"{what}_{name}_seconds", []).append(round(seconds, 2))
            peak = max(peak, 1024 * kilobytes / size)
    medians = {f"median_{key}": statistics.median(values) for key, values in times.items()}
    found["formats"][form] = {"peak_over_size": round(peak, 3), **times, **medians}
    shutil.rmtree(path)
    print(form, found["formats"][form], flush=True)
record.parent.mkdir(parents=True, exist_ok=True)
record.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
