import pytest

from specdec_jax.corpus import fetch
from specdec_jax.corpus.fetch import Archive, members
from specdec_jax.errors import SpecdecError

ROW = ("hello", "a greeting", "It prints a greeting.", "ein Gruß", "Es gibt einen Gruß aus.")


def test_an_update_brings_the_indices_into_the_work_folder(archive, tmp_path):
    archive.put_descriptions([ROW])
    archive.put_index("universe_i18n_Translation-de", "second index")
    found = Archive(tmp_path / "work")
    found.update()
    german = found.index("_Translation-de")
    assert "Es gibt einen Gruß aus." in german
    assert german.endswith("\n\nsecond index")
    assert found.releases() == [
        {
            "Origin": "Debian",
            "Suite": "stable",
            "Codename": "trixie",
            "Version": "13.0",
            "Date": "Sat, 9 Aug 2025",
        }
    ]


def test_the_configuration_keeps_apt_away_from_the_system(archive, tmp_path):
    archive.put_descriptions([ROW])
    Archive(tmp_path / "work").update()
    (call,) = archive.calls()
    assert call == f"-c {tmp_path}/work/apt.conf update"
    text = (tmp_path / "work/apt.conf").read_text()
    assert f'Dir::State::lists "{tmp_path}/work/lists";' in text
    assert f'Dir::Cache::archives "{tmp_path}/work/archives";' in text
    assert "#clear APT::Update::Post-Invoke-Success;" in text
    assert 'Acquire::Languages { "en"; "de"; };' in text


def test_a_system_without_apt_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        SpecdecError, match="apt-get is not on this system: build the corpus on Deb"
    ):
        Archive(tmp_path / "work")
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("ending", "what"),
    [("de", "no German descriptions"), ("en", "no English descriptions")],
)
def test_sources_without_a_language_are_told_with_apts_warning(archive, tmp_path, ending, what):
    archive.put_descriptions([ROW])
    (archive.folder / f"lists/archive_main_i18n_Translation-{ending}").unlink()
    (archive.folder / "warning").write_text("W: Failed to fetch it\n")
    with pytest.raises(SpecdecError, match=rf"{what} \(W: Failed to fetch it\)"):
        Archive(tmp_path / "work").update()


def test_a_failing_apt_is_quoted(archive, tmp_path):
    (archive.folder / "failure").write_text("Reading\nE: No space left on device\nbye\n")
    with pytest.raises(SpecdecError, match=r"update failed with status 100 \(E: No space left"):
        Archive(tmp_path / "work").update()


def test_a_disk_too_small_is_found_before_the_download(archive, tmp_path, monkeypatch):
    archive.put_descriptions([ROW])
    found = Archive(tmp_path / "work")
    monkeypatch.setattr(fetch, "INDEX_MEGABYTES", 10**9)
    with pytest.raises(SpecdecError, match=r"MB free, 1000000000 MB are needed: make room"):
        found.update()
    assert not (archive.folder / "calls").exists()


def test_packages_are_downloaded_once(archive, tmp_path):
    archive.put_package("a_1_all.deb", {"usr/x": b"1"})
    archive.put_package("b_1_all.deb", {"usr/x": b"2"})
    found = Archive(tmp_path / "work")
    packages = found.download(["a", "b"])
    assert {name: path.name for name, path in packages.items()} == {
        "a": "a_1_all.deb",
        "b": "b_1_all.deb",
    }
    # One that broke off is fetched again, and only that one.
    packages["b"].write_bytes(b"half")
    again = found.download(["a", "b"])
    assert again == packages
    assert archive.calls()[-1].endswith("download -qq b")
    assert [content for _, content in members(packages["b"], lambda _: True)] == [b"2"]
    assert found.download(["a", "b"]) == packages
    assert archive.calls()[-1].endswith("download --print-uris a b")


def test_members_reads_what_is_wanted(archive):
    archive.put_package("a_1_all.deb", {"usr/x": b"1", "usr/y": b"2"})
    package = archive.folder / "pool/a_1_all.deb"
    assert list(members(package, lambda path: path == "usr/y")) == [("usr/y", b"2")]


def test_a_damaged_package_is_named(archive, tmp_path):
    (tmp_path / "bad.deb").write_bytes(b"not a package")
    with pytest.raises(SpecdecError, match=r"bad\.deb cannot be read as a Debian package"):
        list(members(tmp_path / "bad.deb", lambda _: True))
