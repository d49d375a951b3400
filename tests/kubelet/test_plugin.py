"""The device plugin and a kubelet that speaks the real protocol over a real socket."""

from __future__ import annotations

import logging
import socket

import grpc
import pytest

from jupyter_gpushare.kubelet import plugin as plugin_module
from jupyter_gpushare.kubelet import registration
from jupyter_gpushare.kubelet.api import device_plugin_pb2 as api
from jupyter_gpushare.kubelet.api import pod_resources_pb2 as api_of_pods
from jupyter_gpushare.scheduler.report.found import PluginProblems
from tests.kubelet.conftest import SEATS, Clock, Node
from tests.kubelet.fake_kubelet import CHECKPOINT, NotAdmitted
from tests.kubelet.test_pods import allocatable, kubelet
from tests.support.waits import wait_until

RESOURCE = "gpushare.jupyter.org/turn"


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the next look."""
    monkeypatch.setattr(plugin_module, "LOOK_S", 0.02)
    monkeypatch.setattr(plugin_module, "ASK_EVERY_S", 0.05)
    monkeypatch.setattr(registration, "PAUSE_S_MIN", 0.05)
    monkeypatch.setattr(registration, "PAUSE_S_MAX", 0.2)


@pytest.mark.promise(
    "kubernetes-16",
    "A container with a seat gets the tenants' sockets and the node's hook, both read-only, and "
    "nothing that says which GPU it has",
)
def test_a_pod_gets_its_seat(node: Node) -> None:
    """The kubelet lists the seats, and each container of a pod gets two mounts and two names."""
    with node.kubelet() as kubelet, node.plugin():
        kubelet.wait_for_seats(SEATS)
        assert kubelet.seen == [f"register {RESOURCE} gpushare.sock"]
        answers = kubelet.admit(containers=2)
        assert len(answers) == 2
        for answer in answers:
            assert dict(answer.envs) == {
                "GPUSHARE_RUNTIME_DIR": "/run/jupyter-gpushare",
                "GPUSHARE_LIBRARY": "/usr/lib/jupyter-gpushare/libgpushare.so",
            }
            assert [(m.container_path, m.host_path, m.read_only) for m in answer.mounts] == [
                ("/run/jupyter-gpushare", str(node.runtime_dir / "tenants"), True),
                ("/usr/lib/jupyter-gpushare", str(node.library_dir), True),
            ]
        assert (node.runtime_dir / "tenants").is_dir()


@pytest.mark.promise("kubernetes-16")
def test_what_the_options_say(node: Node) -> None:
    """The kubelet is told to call neither of the two methods that the plugin does not have."""
    with node.kubelet() as kubelet, node.plugin():
        kubelet.wait_for_seats(SEATS)
        options = kubelet.call("GetDevicePluginOptions", api.Empty(), api.DevicePluginOptions)
        assert not options.pre_start_required
        assert not options.get_preferred_allocation_available
        with pytest.raises(grpc.RpcError) as refused:
            kubelet.call("PreStartContainer", api.Empty(), api.Empty)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.promise(
    "kubernetes-17",
    "The plugin registers again when the kubelet restarts, when the node does, and when the "
    "kubelet has forgotten it",
)
def test_the_kubelet_restarts(node: Node) -> None:
    """A new kubelet removes the plugin's socket; the plugin opens it anew and registers there."""
    with node.plugin():
        for _ in range(3):
            with node.kubelet() as kubelet:
                kubelet.wait_for_seats(SEATS)
                kubelet.admit()


@pytest.mark.promise("kubernetes-17")
def test_the_node_reboots(node: Node) -> None:
    """All sockets are gone, and so is the runtime directory's content; the plugin starts before the
    kubelet and before the scheduler."""
    with node.scheduler(), node.kubelet() as kubelet, node.plugin():
        kubelet.wait_for_seats(SEATS)
    for directory in (node.kubelet_dir, node.runtime_dir / "tenants"):
        for each in directory.iterdir():
            each.unlink()
    (node.runtime_dir / "tenants").rmdir()
    with node.plugin(), node.kubelet() as kubelet:
        kubelet.wait_for_seats(SEATS)
        assert kubelet.admit()


@pytest.mark.promise("kubernetes-17")
def test_the_plugin_restarts(node: Node) -> None:
    """The next one has the same seats; what the first has left behind is no hindrance."""
    with node.kubelet() as kubelet:
        with node.plugin():
            kubelet.wait_for_seats(SEATS)
            names = set(kubelet.plugins[RESOURCE].devices)
        kubelet.wait_for_seats(0)
        assert not (node.kubelet_dir / "gpushare.sock").exists()
        with node.plugin():
            kubelet.wait_for_seats(SEATS)
            assert set(kubelet.plugins[RESOURCE].devices) == names


@pytest.mark.promise("kubernetes-17")
def test_a_killed_plugin_leaves_its_socket(node: Node) -> None:
    """The next plugin takes its place; the kubelet's own files stay."""
    with node.kubelet() as kubelet:
        (node.kubelet_dir / CHECKPOINT).write_text("{}")
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(str(node.kubelet_dir / "gpushare.sock"))
        stale.close()
        with node.plugin():
            kubelet.wait_for_seats(SEATS)
        assert {each.name for each in node.kubelet_dir.iterdir()} == {CHECKPOINT, "kubelet.sock"}


@pytest.mark.promise("kubernetes-17")
def test_the_kubelet_forgets_the_plugin(node: Node) -> None:
    """Its watch ends although it is the same kubelet: the plugin registers once more."""
    clock = Clock()
    with node.kubelet() as kubelet, node.plugin(clock=clock):
        kubelet.wait_for_seats(SEATS)
        kubelet.forget(RESOURCE)
        kubelet.wait_until(lambda: len(kubelet.seen) >= 2)
        clock.runs = True
        kubelet.wait_until(lambda: len(kubelet.seen) >= 3)
        clock.runs = False
        kubelet.wait_for_seats(SEATS)
        assert kubelet.seen[1:3] == ["watch over", f"register {RESOURCE} gpushare.sock"]


@pytest.mark.promise("kubernetes-17")
def test_a_registration_without_effect(node: Node) -> None:
    """The kubelet answers well and never asks for the list: the plugin tries once more."""
    clock = Clock()
    with node.kubelet() as kubelet:
        kubelet.is_forgetful = True
        with node.plugin(clock=clock):
            kubelet.wait_until(lambda: len(kubelet.seen) >= 1)
            clock.runs = True
            kubelet.wait_until(lambda: len(kubelet.seen) >= 2)
            kubelet.is_forgetful = False
            kubelet.wait_until(lambda: bool(kubelet.plugins))
            clock.runs = False
            kubelet.wait_for_seats(SEATS)


@pytest.mark.promise(
    "kubernetes-18",
    "Seats turn unhealthy only when no scheduler has answered for 120 s, and healthy at its next "
    "answer",
)
def test_the_scheduler_goes_and_comes(node: Node) -> None:
    """Pods are admitted until the time is over, and as soon as it answers again."""
    clock = Clock()
    with node.kubelet() as kubelet, node.plugin(clock=clock):
        with node.scheduler():
            kubelet.wait_for_seats(SEATS)
            kubelet.admit()
        clock.runs = True
        kubelet.wait_for_seats(0)
        clock.runs = False
        with pytest.raises(NotAdmitted):
            kubelet.admit()
        with node.scheduler():
            kubelet.wait_for_seats(SEATS)
            kubelet.admit()
        assert len([each for each in kubelet.seen if each.startswith("register")]) == 1


def test_a_scheduler_that_hangs_is_none(node: Node) -> None:
    """It accepts connections and never answers."""
    clock = Clock()
    clock.runs = True
    (node.runtime_dir / "tenants").mkdir()
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(node.runtime_dir / "tenants" / "http.sock"))
        hanging.listen(64)
        with node.kubelet() as kubelet, node.plugin(clock=clock):
            kubelet.wait_until(lambda: kubelet.told() == ["Unhealthy"] * SEATS)


@pytest.mark.promise(
    "bad-input-49",
    "A kubelet that is slow, refuses the plugin or is of another version is told in the log, and "
    "the plugin tries again",
)
def test_a_kubelet_that_refuses_the_version(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """The log has its words. An update of the kubelet is noticed at once."""
    caplog.set_level(logging.INFO)
    with node.plugin():
        with node.kubelet(versions=("v2",)) as kubelet:
            kubelet.wait_until(lambda: len(kubelet.seen) >= 2)
        with node.kubelet() as kubelet:
            kubelet.wait_for_seats(SEATS)
    assert (
        'The kubelet refuses the plugin: requested API version "v1beta1" is not supported by '
        "kubelet. The plugin tries again in" in caplog.text
    )


@pytest.mark.promise("bad-input-49")
def test_a_slow_kubelet(node: Node) -> None:
    """It takes a while to answer; the plugin asks it once, and serves meanwhile."""
    with node.kubelet(answers_s=0.3) as kubelet, node.plugin():
        kubelet.wait_for_seats(SEATS)
        assert len(kubelet.seen) == 1


@pytest.mark.promise("bad-input-49")
def test_a_kubelet_that_never_answers(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket is there and nobody serves it; the kubelet that comes next is asked at once."""
    monkeypatch.setattr("jupyter_gpushare.kubelet.device_plugin.ANSWER_S_MAX", 0.3)
    path = node.kubelet_dir / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as dead, node.plugin():
        dead.bind(str(path))
        dead.listen(1)
        accepted, _ = dead.accept()
        monkeypatch.undo()  # the next one may take its time
        with accepted, node.kubelet() as kubelet:
            kubelet.wait_for_seats(SEATS)


@pytest.mark.promise(
    "bad-input-50",
    "Of two plugins on a node one serves the seats, and the other says so; they do not take them "
    "from each other",
)
def test_two_plugins(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """The second waits until the first has ended, and serves then."""
    caplog.set_level(logging.INFO)
    with node.kubelet() as kubelet, node.plugin(seats=2) as first:
        kubelet.wait_for_seats(2)
        with node.plugin(seats=3):
            kubelet.wait_until(lambda: "serves" in caplog.text and "already" in caplog.text)
            assert kubelet.healthy() == 2
            first.__exit__()
            kubelet.wait_for_seats(3)
    assert "another plugin serves" in caplog.text


@pytest.mark.promise("bad-input-50")
def test_a_plugin_whose_place_is_taken_ends(node: Node) -> None:
    """Somebody has put another socket there: it ends with a sentence, and leaves that socket."""
    with node.kubelet() as kubelet, node.plugin() as running:
        kubelet.wait_for_seats(SEATS)
        path = node.kubelet_dir / "gpushare.sock"
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(node.kubelet_dir / "other.sock"))
            (node.kubelet_dir / "other.sock").replace(path)
            assert running.join() == 1
        assert running.plugin is not None
        assert running.plugin.error.startswith("Another process has put its socket in the place")
        assert path.exists()


def test_a_file_in_the_sockets_place_stays(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """What is not a socket is nobody's to remove."""
    with node.kubelet() as kubelet:
        (node.kubelet_dir / "gpushare.sock").write_text("theirs")
        with node.plugin():
            kubelet.wait_until(lambda: "is not a socket; move it away" in caplog.text)
            (node.kubelet_dir / "gpushare.sock").unlink()
            kubelet.wait_for_seats(SEATS)


@pytest.mark.promise("kubernetes-21")
def test_the_scheduler_is_told_what_is_wrong_with_pods(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again and again, as the kubelet says it then; a kubelet that is silent changes nothing."""
    monkeypatch.setattr(plugin_module, "WRITE_EVERY_S", 0.02)
    pods = [api_of_pods.PodResources(name="jupyter-bob", namespace="hub")]
    gpu = api_of_pods.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["GPU-1::1"])
    pods[0].containers.add(name="notebook", devices=[gpu])
    told = PluginProblems(node.runtime_dir)

    def eventually(sentences: int) -> None:
        wait_until(lambda: len(told.now()) == sentences, f"{sentences} sentences")

    with (
        node.plugin(),
        kubelet(
            node.pods_socket,
            List=lambda: api_of_pods.ListPodResourcesResponse(pod_resources=pods),
            GetAllocatableResources=allocatable,
        ),
    ):
        eventually(1)
        assert "jupyter-bob has a share of GPU-1 and no seat" in told.now()[0]
        assert "Add gpushare.jupyter.org/turn: 1" in told.now()[0]
        pods.clear()
        eventually(0)
        assert (node.runtime_dir / "plugin-problems.json").exists()
