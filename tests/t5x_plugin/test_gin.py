"""Every gin file goes through T5X's parser; the models are built without memory for them.

UPDATE_GOLDEN=1 rewrites the operative texts in tests/golden/gin.
"""

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
EXPERIMENTS = sorted((CONFIGS / "experiments").glob("*.gin"))
TARGETS = sorted((CONFIGS / "targets").glob("*.gin"))
DRAFTS = sorted((CONFIGS / "drafts").glob("*.gin"))


@gin.configurable("the_run")
def the_run(model=None, dataset=None, restore=None):
    return model, dataset, restore


@pytest.fixture
def parse(monkeypatch):
    """Parse as `python -m t5x.infer` does, and return what the run is made of, with its text."""
    monkeypatch.setitem(sys.modules, "__main__", t5x.infer)
    monkeypatch.chdir(ROOT)

    def run(files, bindings):
        gin.clear_config()
        used = [
            "the_run.model = %MODEL",
            "the_run.dataset = @utils.DatasetConfig()",
            "the_run.restore = @utils.RestoreCheckpointConfig()",
        ]
        gin_utils.parse_gin_flags([str(ROOT)], [str(f) for f in files], [*bindings, *used])
        return (*the_run(), gin.operative_config_str())

    yield run
    gin.clear_config()


@functools.cache
def sizes(config):
    """Number of parameters of a network, from its shapes."""
    model = models.EncoderDecoderModel(Transformer(config), None, None, None)
    init = functools.partial(model.get_initial_variables, input_shapes=SHAPES)
    shapes = jax.eval_shape(init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(core.unfreeze(shapes["params"])))


def compare(name, text):
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path}: UPDATE_GOLDEN=1 rewrites it"


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
    compare(path.stem, text)


def test_an_experiment_builds_whole(parse):
    model, *_ = parse([CONFIGS / "experiments/table2_ende_small_t0.gin"], [*PLACES, DRAFT_PLACE])
    init = functools.partial(model.get_initial_variables, input_shapes=SHAPES)
    params = core.unfreeze(jax.eval_shape(init, jax.random.key(0))["params"])
    draft = sum(leaf.size for leaf in jax.tree.leaves(params.pop(DRAFT)))
    assert draft == sizes(model.draft_module.config)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == sizes(model.module.config)


@pytest.mark.parametrize("path", TARGETS, ids=lambda p: p.stem)
def test_targets_with_the_baseline(parse, path):
    run = CONFIGS / "runs/infer_baseline.gin"
    model, _, _, text = parse([run, path], [*PLACES, *TASK])
    assert_size(path, model.module.config)
    compare(f"baseline_{path.stem}", text)


@pytest.mark.parametrize("path", DRAFTS, ids=lambda p: p.stem)
def test_drafts_inherit_nothing_from_the_target(parse, path):
    run = CONFIGS / "runs/infer_speculative.gin"
    family = path.stem.rsplit("_", 1)[0]
    target = CONFIGS / "targets" / (f"{family}_xxl.gin" if family != "debian" else path.name)
    model, _, restore, text = parse([run, target, path], [*PLACES, *TASK, DRAFT_PLACE])
    assert_size(path, model.draft_module.config)
    assert restore.checkpoint_manager_cls.__name__ == "SpeculativeCheckpointManager"
    compare(f"speculative_{path.stem}", text)


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


def test_eval_runs(parse, monkeypatch):
    import t5x.eval

    monkeypatch.setitem(sys.modules, "__main__", t5x.eval)
    files = [
        CONFIGS / "runs/eval_speculative.gin",
        CONFIGS / "targets/t5_1_1_tiny.gin",
        CONFIGS / "drafts/t5_1_1_tiny.gin",
    ]
    places = [PLACES[0], "EVAL_OUTPUT_DIR = '/out'", DRAFT_PLACE, TASK[0]]
    model, _, restore, text = parse(files, places)
    assert model.draft_module.config == model.module.config
    assert restore.checkpoint_manager_cls.__name__ == "SpeculativeCheckpointManager"
    compare("eval_t5_1_1_tiny", text)
