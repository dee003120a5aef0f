import pytest
from tiny_pairs import save_pair

from specdec_jax import cli, generate


@pytest.fixture(scope="module")
def folders(tmp_path_factory, fast_compilation):
    return save_pair(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def call(capsys):
    """Run a command in this process; its status, output and errors."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main(cli.parser().parse_args([str(a) for a in arguments]))
        written = capsys.readouterr()
        return ended.value.code, written.out, written.err

    return run


@pytest.fixture
def tiny(call, folders):
    """Run `generate` on the tiny pair."""
    flags = ("--target", folders[0], "--draft", folders[1], "--gamma", 2, "--max_tokens", 12)
    return lambda *arguments: call("generate", *flags, "--prefix", "", *arguments)


@pytest.fixture
def unloaded(monkeypatch):
    """What must be refused before any model is read."""
    monkeypatch.setattr(generate, "load_pair", lambda *a, **k: pytest.fail("models were loaded"))
