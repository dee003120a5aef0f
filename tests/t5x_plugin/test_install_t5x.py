"""The installer, on a small wheel of the same shape; the other tests import the real one."""

import csv
import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("install_t5x", ROOT / "scripts/install_t5x.py")
install_t5x = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(install_t5x)

FILES = {
    "t5x/__init__.py": b"from mt3_audio2midi.t5x import decoding\n",
    "t5x/decoding.py": b"import mt3_audio2midi.airio.core\nmt3_audio2midi.mt3.stays\n",
    "t5x/configs/runs/infer.gin": b"from mt3_audio2midi.t5x import utils\n",
    "airio/core.py": b"VALUE = 7\n",
    "jestimator/data.bin": b"\xff\xfe mt3_audio2midi.t5x",
    "mt3/layers.py": b"not wanted\n",
}


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / "mt3_audio2midi-0.2.0-py2.py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in FILES.items():
            archive.writestr(f"mt3_audio2midi/{name}", data)
        archive.writestr("mt3_audio2midi/__init__.py", "not wanted\n")
        archive.writestr("mt3_audio2midi-0.2.0.dist-info/METADATA", "not wanted\n")
    return path


def test_packages_are_renamed_and_recorded(wheel, tmp_path):
    site = tmp_path / "site"
    count = install_t5x.unpack(wheel, site)
    assert (site / "t5x/__init__.py").read_text() == "from t5x import decoding\n"
    assert (site / "t5x/decoding.py").read_text() == (
        "import airio.core\nmt3_audio2midi.mt3.stays\n"
    )
    assert (site / "t5x/configs/runs/infer.gin").read_text() == "from t5x import utils\n"
    assert (site / "jestimator/data.bin").read_bytes() == FILES["jestimator/data.bin"]
    assert sorted(p.name for p in site.iterdir() if not p.name.endswith(".dist-info")) == [
        "airio",
        "jestimator",
        "t5x",
    ]
    (info,) = site.glob("*.dist-info")
    rows = list(csv.reader((info / "RECORD").read_text().splitlines()))
    assert {row[0] for row in rows} == {
        str(p.relative_to(site)) for p in site.rglob("*") if p.is_file()
    }
    assert len(rows) == count
    assert install_t5x.SHA256 in (info / "METADATA").read_text()


def test_pip_knows_it_and_removes_it(wheel, tmp_path):
    site = tmp_path / "site"
    install_t5x.unpack(wheel, site)
    pip = [sys.executable, "-m", "pip"]
    listed = subprocess.run(
        [*pip, "list", "--path", str(site)], capture_output=True, text=True, check=True
    )
    assert install_t5x.INSTALLED_VERSION in listed.stdout
    # pip removes from sys.path alone, so the folder stands first there.
    script = (
        f"import sys; sys.path.insert(0, {str(site)!r}); sys.argv[1:] = ['uninstall', '-y', 't5x'];"
        "from pip._internal.cli.main import main; main()"
    )
    subprocess.run([sys.executable, "-S", "-c", _with_pip(script)], check=True)
    assert not [p for p in site.rglob("*") if p.is_file()]


def _with_pip(script):
    """Give a Python without site packages pip alone, lest the real T5X is found first."""
    folder = Path(importlib.util.find_spec("pip").origin).parents[1]
    return f"import sys; sys.path.append({str(folder)!r}); {script}"


def test_another_wheel_is_refused_before_anything_is_written(wheel):
    with pytest.raises(install_t5x.InstallError, match="nothing was installed"):
        install_t5x.verify(wheel)
    install_t5x.verify(wheel, hashlib.sha256(wheel.read_bytes()).hexdigest())
    with pytest.raises(install_t5x.InstallError, match="There is no file"):
        install_t5x.verify(wheel.with_name("absent.whl"))


def test_half_a_t5x_is_not_written_over(wheel, tmp_path):
    (tmp_path / "site/airio").mkdir(parents=True)
    with pytest.raises(install_t5x.InstallError, match="remove it and run"):
        install_t5x.unpack(wheel, tmp_path / "site")


def test_an_installed_t5x_is_left_alone(monkeypatch, capsys):
    monkeypatch.setattr(install_t5x, "installed", lambda name: f"/site/{name}/__init__.py")
    monkeypatch.setattr(install_t5x, "fetch", pytest.fail)
    assert install_t5x.main([]) == 0
    assert "installed already" in capsys.readouterr().out


def test_a_failed_download_has_a_remedy(monkeypatch, capsys):
    def no_index(*_, **__):
        return subprocess.CompletedProcess([], 1, "", "noise\nERROR: No matching distribution\n")

    monkeypatch.setattr(install_t5x, "installed", lambda name: None)
    monkeypatch.setattr(install_t5x.subprocess, "run", no_index)
    assert install_t5x.main([]) == 1
    said = capsys.readouterr().err
    assert "No matching distribution" in said
    assert "--wheel FILE" in said
    assert "repository" in said


def test_the_installed_one_is_found_without_importing_it():
    assert install_t5x.installed("t5x", sys.path)
    assert install_t5x.installed("no_such_package") is None
