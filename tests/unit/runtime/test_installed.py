"""Which TensorFlow is installed, from any package; the error if it is missing or too old."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys

import pytest

from ps_train.runtime import installed
from tests.errors import raises
from tests.processes import GUARD_SECS, REPO


def environment(folder, packages):
    """Makes a folder of packages as pip leaves them: name -> (version, modules)."""
    folder.mkdir(exist_ok=True)
    for name, (version, modules) in packages.items():
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "top_level.txt").write_text("".join(f"{module}\n" for module in modules))
        for module in modules:
            (folder / module).mkdir(exist_ok=True)
            (folder / module / "__init__.py").write_text("raise RuntimeError('nobody may import it here')\n")
    return folder


@pytest.fixture
def only(tmp_path, monkeypatch):
    """A function that makes these packages the only ones that are found."""
    def make(packages):
        folder = environment(tmp_path / "packages", packages)
        monkeypatch.setattr(sys, "path", [str(folder)])
        importlib.invalidate_caches()

    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorflow"]:
        monkeypatch.delitem(sys.modules, name)
    return make


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly"])
@pytest.mark.parametrize(("version", "is_supported"), [
    ("2.13.1", False), ("1.15.5", False), ("2.14.0", True), ("2.15.1", True), ("2.21.0", True), ("3.0.0", True),
    ("2.22.0.dev20260101", True)])
def test_a_version_counts_whatever_the_packages_name(only, name, version, is_supported):
    """Without importing it; the error about one that is too old has the version."""
    only({"tensorboard": ("2.1.0", ["tensorboard"]), name: (version, ["tensorflow"])})
    assert installed.tensorflow_version() == version
    if is_supported:
        installed.check_tensorflow()
    else:
        with raises("tensorflow_too_old") as caught:
            installed.check_tensorflow()
        assert version in str(caught.value) and installed.OLDEST in str(caught.value)


def test_without_tensorflow_the_line_says_what_to_install(only):
    """With a GPU and without."""
    only({"tensorflow-estimator": ("2.14.0", ["tensorflow_estimator"])})
    with raises("tensorflow_missing") as caught:
        installed.check_tensorflow()
    assert "`pip install tensorflow`" in str(caught.value) and "`pip install tensorflow-cpu`" in str(caught.value)


def test_a_build_of_ones_own_is_trusted(only, tmp_path):
    """The module exists, and no package says its version."""
    only({"other": ("1.0", ["other"])})
    (tmp_path / "packages" / "tensorflow").mkdir()
    (tmp_path / "packages" / "tensorflow" / "__init__.py").touch()
    importlib.invalidate_caches()
    assert installed.tensorflow_version() == ""
    installed.check_tensorflow()


@pytest.mark.parametrize(("modules", "missing"), [((), ""), (("absl", "numpy"), ""),
                                                  (("absl", "no_such_module"), "no_such_module")])
def test_it_lists_missing_modules_for_setup_env(capsys, modules, missing):
    """On stdout; the exit code says whether any is missing."""
    assert installed.main(modules) == bool(missing)
    output = capsys.readouterr().out
    assert missing in output and bool(output) == bool(missing)


@pytest.mark.parametrize("arguments", [["--job_name=ps"], ["launch", "--num_ps=1"]])
def test_an_old_tensorflow_ends_the_program_with_one_line(tmp_path, arguments):
    """Exit code 2, before it is imported and before a task starts."""
    folder = environment(tmp_path / "packages", {"tensorflow-cpu": ("2.12.0", ["tensorflow"])})
    ended = run_with(folder, [sys.executable, "-m", "ps_train", *arguments])
    lines = [line for line in (ended.stdout + ended.stderr).splitlines() if not line.startswith("Loading TensorFlow")]
    assert (ended.returncode, len(lines)) == (2, 1), ended
    assert "2.12.0" in lines[0] and lines[0].endswith("[tensorflow_too_old]")


@pytest.mark.parametrize(("version", "found"), [("2.14.1", True), ("2.12.0", False)])
def test_setup_env_takes_tensorflow_cpu_and_says_why_it_takes_no_older_one(tmp_path, version, found):
    """has_modules, of scripts/setup_env.sh, on an environment that has tensorflow-cpu alone."""
    folder = environment(tmp_path / "packages", {"tensorflow-cpu": (version, ["tensorflow"])})
    ended = run_with(folder, ["bash", "-c", f"source scripts/setup_env.sh; has_modules {sys.executable} absl numpy"])
    assert ended.returncode == (0 if found else 1), ended
    assert (ended.stdout == "") is found and (found or "TensorFlow is 2.12.0" in ended.stdout)


def test_the_package_requires_no_tensorflow_by_name():
    """Otherwise pip would add `tensorflow` to an environment with `tensorflow-cpu`; the extras have both."""
    text = (REPO / "setup.py").read_text()
    assert re.search(r'install_requires=\["absl-py", "numpy"\]', text)
    assert '"tensorflow": ["tensorflow>=2.14"]' in text and '"tensorflow-cpu": ["tensorflow-cpu>=2.14"]' in text


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "CONTRIBUTING.md"])
def test_the_pages_name_the_versions_that_are_checked(page):
    """The oldest of OLDEST, and the newest of the message about a TensorFlow that is missing."""
    oldest, newest = re.search(r"tested: (\S+) to (\S+)\)", installed.tensorflow_problem(None)).groups()
    assert oldest == installed.OLDEST
    named = re.findall(r"TensorFlow \(?(2\.[0-9.]+) to (2\.[0-9]+)", (REPO / page).read_text())
    assert set(named) == {(oldest, newest)}


def test_the_package_says_what_it_is():
    """The page of the package index has the README, and Python's versions are those that the README names."""
    text, readme = (REPO / "setup.py").read_text(), (REPO / "README.md").read_text()
    oldest, newest = (int(minor) for minor in re.search(r"Python 3\.(\d+) to 3\.(\d+)", readme).groups())
    assert f'python_requires=">=3.{oldest}"' in text and 'long_description_content_type="text/markdown"' in text
    listed = re.search(r"Python :: \{version\}\" for version in \((.*?)\)", text)[1]
    assert re.findall(r'"3\.(\d+)"', listed) == [str(minor) for minor in range(oldest, newest + 1)]


def run_with(folder, command):
    environ = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{REPO}"}
    environ.pop("TF_CONFIG", None)
    return subprocess.run(command, cwd=REPO, env=environ, capture_output=True, text=True, timeout=GUARD_SECS,
                          check=False)


@pytest.mark.parametrize(("given", "expected"), [(None, 2**46), ("1000", 1000)])
def test_reserved_memory_is_not_limited_unless_the_user_limits_it(monkeypatch, given, expected):
    """A few dynamic tables reserve more than a machine has, and use little of it."""
    monkeypatch.delenv("TF_MKL_ALLOC_MAX_BYTES", raising=False)
    monkeypatch.setenv("TF_GRPC_DEFAULT_OPTIONS", "")  # restored at the end
    if given:
        monkeypatch.setenv("TF_MKL_ALLOC_MAX_BYTES", given)
    installed.prepare_native_code()
    assert int(os.environ["TF_MKL_ALLOC_MAX_BYTES"]) == expected


@pytest.mark.parametrize(("given", "expected"), [
    (None, "grpc.enable_http_proxy=0"),
    ("grpc.keepalive_time_ms=60000", "grpc.keepalive_time_ms=60000,grpc.enable_http_proxy=0"),
    ("grpc.enable_http_proxy=1", "grpc.enable_http_proxy=1")])
def test_tasks_call_each_other_past_the_proxy_unless_the_user_wants_it(monkeypatch, given, expected):
    """Options of the user stay, also after a second call."""
    monkeypatch.setenv("TF_MKL_ALLOC_MAX_BYTES", "1000")
    monkeypatch.setenv("TF_GRPC_DEFAULT_OPTIONS", given or "")
    if given is None:
        monkeypatch.delenv("TF_GRPC_DEFAULT_OPTIONS")
    for _ in range(2):
        installed.prepare_native_code()
        assert os.environ["TF_GRPC_DEFAULT_OPTIONS"] == expected
