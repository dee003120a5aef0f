"""Every gin file goes through T5X's parser; the models are built without memory for them.

tests/golden/gin has the operative text of each run with the shipped pair, and of every other
configuration the lines in which it differs from that. UPDATE_GOLDEN=1 rewrites them.
"""

import dataclasses
import difflib
import functools
import os
import sys
from pathlib import Path

import gin
import jax
import pytest
import t5x.infer
from flax import core
from t5x import gin_utils, models

from specdec_jax.t5.config import PRESETS
from specdec_jax.t5x_plugin.models import DRAFT
from specdec_jax.t5x_plugin.network import Transformer

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "gin_configs"
GOLDEN = ROOT / "tests/golden/gin"
SHAPES = {"encoder_input_tokens": (1, 4), "decoder_input_tokens": (1, 4)}
PLACES = [
    "CHECKPOINT_PATH = '/target/checkpoint_1'",
    "INFER_OUTPUT_DIR = '/out'",
]
DRAFT_PLACE = "DRAFT_CHECKPOINT_PATH = '/draft/checkpoint_1'"
TASK = [
    "MIXTURE_OR_TASK_NAME = 'specdec_wmt_ende'",
    "TASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}",
]
# In one worker, since families share stacks that take seconds to trace.
pytestmark = pytest.mark.xdist_group("gin")

EXPERIMENTS = sorted((CONFIGS / "experiments").glob("*.gin"))
TARGETS = sorted((CONFIGS / "targets").glob("*.gin"))
DRAFTS = sorted((CONFIGS / "drafts").glob("*.gin"))
FINETUNES = sorted((CONFIGS / "runs").glob("finetune_*.gin"))
BASELINE = [CONFIGS / "runs/infer_baseline.gin", CONFIGS / "targets/ende.gin"]
SPECULATIVE = [
    CONFIGS / "runs/infer_speculative.gin",
    CONFIGS / "targets/ende.gin",
    CONFIGS / "drafts/ende.gin",
]


@gin.configurable("the_run")
def the_run(model=None, dataset=None, restore=None):
    return model, dataset, restore


@pytest.fixture(scope="module")
def parse():
    """Parse as `python -m t5x.infer` does, and return what the run is made of, with its text."""

    def run(files, bindings, main=t5x.infer, scope=""):
        gin.clear_config()
        used = [
            "the_run.model = %MODEL",
            f"the_run.dataset = @{scope}utils.DatasetConfig()",
            "the_run.restore = @utils.RestoreCheckpointConfig()",
        ]
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "__main__", main)
            patch.chdir(ROOT)
            gin_utils.parse_gin_flags([str(ROOT)], [str(f) for f in files], [*bindings, *used])
            return (*the_run(), gin.operative_config_str())

    yield run
    gin.clear_config()


def sizes(config):
    """Number of parameters of a network, from its shapes."""
    rows = config.vocab_size * (1 if config.logits_via_embedding else 2)
    return rows * config.emb_dim + _stack(dataclasses.replace(config, vocab_size=1))


@functools.cache
def _stack(config):
    """Parameters but for the vocabulary's: families share stacks, and tracing takes seconds."""
    model = models.EncoderDecoderModel(Transformer(config), None, None, None)
    init = functools.partial(model.get_initial_variables, input_shapes=SHAPES)
    shapes = jax.eval_shape(init, jax.random.key(0))
    total = sum(leaf.size for leaf in jax.tree.leaves(core.unfreeze(shapes["params"])))
    return total - config.emb_dim * (1 if config.logits_via_embedding else 2)


def compare(name, text):
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path}: UPDATE_GOLDEN=1 rewrites it"


@functools.cache
def text_of(parse, *files):
    return parse(files, [*PLACES, *TASK, DRAFT_PLACE])[-1]


def compare_lines(parse, name, text, files):
    """Compare what is left of a text after that of a run whose text is golden itself."""
    lines = difflib.unified_diff(
        text_of(parse, *files).splitlines(), text.splitlines(), n=0, lineterm=""
    )
    compare(f"{name}.diff", "".join(f"{line}\n" for line in [*lines][2:]))


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)
def test_experiments(parse, path):
    model, dataset, restore, text = parse([path], [*PLACES, DRAFT_PLACE])
    _, _, size, temperature = path.stem.split("_")
    assert model.module.config.emb_dim == PRESETS["t5_1_1_xxl"].emb_dim
    assert sizes(model.module.config) > 11e9
    draft = sizes(model.draft_module.config)
    assert round(draft / 1e6) == {"small": 77, "base": 248, "large": 783}[size]
    assert restore.path == "/target/checkpoint_1"
    assert dataset.batch_size == 1
    assert f"TEMPERATURE = {float(temperature[1:])}" in text
    compare_lines(parse, path.stem, text, SPECULATIVE)


def test_an_experiment_builds_whole(parse):
    model, *_ = parse([CONFIGS / "experiments/table2_ende_small_t0.gin"], [*PLACES, DRAFT_PLACE])
    init = functools.partial(model.get_initial_variables, input_shapes=SHAPES)
    params = core.unfreeze(jax.eval_shape(init, jax.random.key(0))["params"])
    draft = sum(leaf.size for leaf in jax.tree.leaves(params.pop(DRAFT)))
    assert draft == sizes(model.draft_module.config)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == sizes(model.module.config)


def test_runs_with_the_shipped_pair(parse):
    compare("infer_baseline.txt", text_of(parse, *BASELINE))
    compare("infer_speculative.txt", text_of(parse, *SPECULATIVE))


@pytest.mark.parametrize("path", TARGETS, ids=lambda p: p.stem)
def test_targets_with_the_baseline(parse, path):
    model, _, _, text = parse([BASELINE[0], path], [*PLACES, *TASK])
    assert_size(path, model.module.config)
    compare_lines(parse, f"target_{path.stem}", text, BASELINE)


@pytest.mark.parametrize("path", DRAFTS, ids=lambda p: p.stem)
def test_drafts_inherit_nothing_from_the_target(parse, path):
    family = path.stem.rpartition("_")[0]
    target = CONFIGS / "targets" / (f"{family}_xxl.gin" if family else path.name)
    files = [SPECULATIVE[0], target, path]
    model, _, restore, text = parse(files, [*PLACES, *TASK, DRAFT_PLACE])
    assert_size(path, model.draft_module.config)
    assert restore.checkpoint_manager_cls.__name__ == "SpeculativeCheckpointManager"
    compare_lines(parse, f"draft_{path.stem}", text, SPECULATIVE)


def assert_size(path, config):
    """The file's first line says the number of parameters; the public T5s are also presets."""
    said = path.read_text(encoding="utf-8").splitlines()[0].rsplit(": ", 1)
    found = sizes(config)
    if path.stem in PRESETS:
        assert found == sizes(PRESETS[path.stem])
    if len(said) == 2:
        number, unit = said[1].split()[0][:-1], said[1].split()[0][-1]
        scale = {"k": 1e3, "M": 1e6, "B": 1e9}[unit]
        digits = 1 if unit == "B" else 0
        assert round(found / scale, digits) == float(number)


def test_eval_runs(parse):
    import t5x.eval

    files = [CONFIGS / "runs/eval_speculative.gin", *SPECULATIVE[1:]]
    places = [PLACES[0], "EVAL_OUTPUT_DIR = '/out'", DRAFT_PLACE, TASK[0]]
    model, _, restore, text = parse(files, places, main=t5x.eval)
    assert model.draft_module.config.emb_dim < model.module.config.emb_dim
    assert restore.checkpoint_manager_cls.__name__ == "SpeculativeCheckpointManager"
    compare("eval_speculative.txt", text)


@pytest.mark.parametrize("path", FINETUNES, ids=lambda p: p.stem)
def test_fine_tuning(parse, path):
    import t5x.train

    target = CONFIGS / "targets/t5_1_1_large.gin"
    places = ["MODEL_DIR = '/out'", "INITIAL_CHECKPOINT_PATH = '/pretrained/checkpoint_1000000'"]
    if path.stem == "finetune_task":
        places += [*TASK, "TRAIN_STEPS = 1020000"]
    model, dataset, restore, text = parse([path, target], places, main=t5x.train, scope="train/")
    assert_size(target, model.module.config)
    assert model.module.config.dropout_rate == 0.1
    hyper = model.optimizer_def.hyper_params
    assert hyper.step_offset == 1000000 < gin.query_parameter("%TRAIN_STEPS") == 1020000
    assert restore.path == "/pretrained/checkpoint_1000000"
    assert (dataset.split, dataset.pack, dataset.use_cached) == ("train", True, False)
    compare(f"{path.stem}.txt", text)
    # What is decoded later has the task and the lengths of what was trained on.
    for experiment in EXPERIMENTS:
        if experiment.stem.split("_")[1] == path.stem.removeprefix("finetune_"):
            _, decoded, *_ = parse([experiment], [*PLACES, DRAFT_PLACE])
            assert decoded.mixture_or_task_name == dataset.mixture_or_task_name
            assert decoded.task_feature_lengths == dataset.task_feature_lengths
