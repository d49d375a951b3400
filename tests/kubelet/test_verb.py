"""`jupyter gpushare kubelet-plugin` as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.cli.main import main
from jupyter_gpushare.kernel.environment import library_path
from tests.kubelet.conftest import SEATS, Node
from tests.support.waits import WAIT_S_MAX


def command(node: Node, *flags: str) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyter_gpushare.cli.main", "kubelet-plugin", *flags),
        f"--kubelet-dir={node.kubelet_dir}",
        f"--runtime-dir={node.runtime_dir}",
        f"--library-dir={node.library_dir}",
    ]


@pytest.mark.promise("kubernetes-16")
def test_the_process(node: Node) -> None:
    """It puts the library into its place, serves, and ends well at SIGTERM; its socket is gone."""
    with node.kubelet() as kubelet:
        plugin = subprocess.Popen(
            command(node, f"--seats={SEATS}"), stderr=subprocess.PIPE, text=True
        )
        kubelet.wait_for_seats(SEATS)
        (_, library) = kubelet.admit()[0].mounts
        kept = Path(library.host_path) / "libgpushare.so"
        assert kept.read_bytes() == library_path({}).read_bytes()
        assert kept.stat().st_mode & 0o777 == 0o755
        assert plugin.stderr
        lines = iter(plugin.stderr.readline, "")
        assert any("The kubelet has taken the seats of this node." in line for line in lines)
        plugin.send_signal(signal.SIGTERM)
        _, log = plugin.communicate(timeout=WAIT_S_MAX)
        assert plugin.returncode == 0, log
        assert "Traceback" not in log
        assert not (node.kubelet_dir / "gpushare.sock").exists()


def test_a_new_library_takes_the_place_of_the_old_one(node: Node) -> None:
    """In one step, in the same directory: a container that has it sees the new one, and a kernel
    that has mapped the old file keeps it."""
    kept = node.library_dir / "libgpushare.so"
    kept.write_bytes(b"old")
    with kept.open("rb") as mapped, node.kubelet() as kubelet:
        plugin = subprocess.Popen(command(node, "--seats=1"), stderr=subprocess.DEVNULL)
        kubelet.wait_for_seats(1)
        plugin.terminate()
        plugin.wait(WAIT_S_MAX)
        assert mapped.read() == b"old"
    assert kept.read_bytes() == library_path({}).read_bytes()
    assert [each.name for each in node.library_dir.iterdir()] == ["libgpushare.so"]


@pytest.mark.parametrize(
    ("flags", "sentences"),
    [
        (["--seats=0"], "A node cannot have 0 seats. Give --seats a number from 1 to 4096."),
        (["--seats=5000"], "A node cannot have 5000 seats. Give --seats a number from 1 to 4096."),
        (
            ["--seats=1", "--unhealthy-after-s=0"],
            "Seats cannot turn unhealthy after 0 s. Give --unhealthy-after-s a positive number.",
        ),
        (
            ["--seats=1", "--runtime-dir=run"],
            "run is not an absolute path, and pods get mounts by it. Give --runtime-dir a path "
            "that starts with a slash.",
        ),
        (
            ["--seats=1", "--kubelet-dir=/nowhere"],
            "There is no directory /nowhere. Run this on a node of Kubernetes with that directory "
            "mounted, or name the kubelet's in --kubelet-dir.",
        ),
    ],
)
def test_wrong_flags(flags: list[str], sentences: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence on what is wrong and one on what to do."""
    assert main(["kubelet-plugin", *flags]) == 2
    assert capsys.readouterr().err == f"jupyter gpushare: {sentences}\n"


def test_a_path_that_is_too_long(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """A socket's path has at most 107 bytes; the plugin says so and tries again."""
    node.kubelet_dir = node.kubelet_dir / ("k" * (92 - len(str(node.kubelet_dir))))
    node.kubelet_dir.mkdir()
    with node.kubelet() as kubelet, node.plugin():
        kubelet.wait_until(lambda: "is longer than the 107 bytes that a socket" in caplog.text)


def test_without_grpc(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever has not installed the extra is told its name."""
    for name in [name for name in sys.modules if name.startswith("jupyter_gpushare.kubelet.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    assert main(["kubelet-plugin", "--seats=1", f"--kubelet-dir={node.kubelet_dir}"]) == 2
    assert "Install jupyter-gpushare[kubernetes]." in capsys.readouterr().err
