"""Who has a GPU and who has a seat: what a kubelet tells, and what is wrong with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from jupyter_gpushare.cli.checkup.facts import Facts, NodeFacts
from jupyter_gpushare.cli.checkup.findings import Finding, Level, findings
from jupyter_gpushare.cli.checkup.node_devices import node_facts
from jupyter_gpushare.kubelet.api import pod_resources_pb2 as api
from jupyter_gpushare.kubelet.pods import Container, NodeDevices, mistakes
from tests.cli.machines import GIB, HEALTHY, bad, machine_with

SEAT = "gpushare.jupyter.org/turn"
GPU = "nvidia.com/gpu"
ALLOCATABLE = {GPU: ("GPU-1::0", "GPU-1::1", "GPU-1::2"), SEAT: ("seat-0", "seat-1")}


def container(name: str = "ann", **devices: tuple[str, ...]) -> Container:
    """`gpu` and `seat` stand for the two resources."""
    names = {"gpu": GPU, "seat": SEAT, "shared": "nvidia.com/gpu.shared", "mig": "nvidia.com/mig-1"}
    by_resource = {names[each]: ids for each, ids in devices.items()}
    return Container("hub", f"jupyter-{name}", "notebook", by_resource)


BOTH = container(gpu=("GPU-1::0",), seat=("seat-0",))


def said(*containers: Container, allocatable: Any = ALLOCATABLE) -> list[str]:
    return [each.what for each in mistakes(NodeDevices(containers, allocatable))]


@pytest.mark.promise(
    "kubernetes-19",
    "The doctor of a node tells a container with a share of a GPU and no seat, a seat without a "
    "GPU, GPUs without replicas, and a plugin that is not registered",
)
def test_nothing_is_wrong() -> None:
    """Both resources, or a whole GPU that is shared with nobody, or none."""
    assert said(BOTH, container("bob")) == []
    assert said() == []
    assert said(container("cy", gpu=("GPU-2",)), allocatable={SEAT: ("seat-0",)}) != []
    assert said(container("cy", gpu=("GPU-2",)), allocatable=None) == []


@pytest.mark.promise("kubernetes-19")
@pytest.mark.parametrize("resource", ["gpu", "shared", "mig"])
def test_a_gpu_without_a_seat(resource: str) -> None:
    """By any of NVIDIA's names for one."""
    assert said(BOTH, container("bob", **{resource: ("GPU-1::1",)})) == [
        "The container notebook of the pod hub/jupyter-bob has a share of GPU-1 and no seat, so "
        "its programs run beside those that take turns there."
    ]


@pytest.mark.promise("kubernetes-19")
def test_a_seat_without_a_gpu() -> None:
    """Its place could be somebody else's."""
    assert said(BOTH, container("bob", seat=("seat-1",))) == [
        "The container notebook of the pod hub/jupyter-bob has a seat and no GPU of NVIDIA's, so "
        "it keeps a seat from others."
    ]


@pytest.mark.promise("kubernetes-19")
def test_no_replicas() -> None:
    """Without them, one pod has a GPU for itself, and there is nobody to take turns with."""
    sentence = (
        "NVIDIA's device plugin gives GPU-1 to one pod alone, because it makes no replicas of it."
    )
    assert said(allocatable={**ALLOCATABLE, GPU: ("GPU-1",)}) == [sentence]
    assert said(container(gpu=("GPU-1",), seat=("seat-0",)), allocatable=None) == [sentence]


@pytest.mark.promise("kubernetes-19")
def test_no_plugin() -> None:
    """The kubelet has no healthy seat: the plugin is away, or the scheduler is."""
    assert said(allocatable={GPU: ALLOCATABLE[GPU]}) == [
        f"The kubelet of this node has no healthy {SEAT}, so no new pod gets a seat here."
    ]


def test_the_gpus_of_a_container() -> None:
    """As CUDA shows them: without the replica's number, and each once."""
    assert container(gpu=("GPU-1::0", "GPU-2::1", "GPU-1::2")).gpus == ("GPU-1", "GPU-2")


def seats(facts: Facts) -> list[Finding]:
    return [finding for finding in findings(facts) if finding.check == "seats"]


# ---- the kubelet's answer, over its real protocol -----------------------------------------------


def listed() -> api.ListPodResourcesResponse:
    """Ann has both, in one container of two. Bob's pod has no device."""
    both = [
        api.ContainerDevices(resource_name=GPU, device_ids=["GPU-1::0"]),
        api.ContainerDevices(resource_name=GPU, device_ids=["GPU-2::0"]),
        api.ContainerDevices(resource_name=SEAT, device_ids=["seat-0"]),
    ]
    ann = api.PodResources(
        name="jupyter-ann",
        namespace="hub",
        containers=[
            api.ContainerResources(name="notebook", devices=both),
            api.ContainerResources(name="sidecar"),
        ],
    )
    bob = api.PodResources(name="jupyter-bob", namespace="hub")
    return api.ListPodResourcesResponse(pod_resources=[ann, bob])


def allocatable() -> api.AllocatableResourcesResponse:
    """The devices of the node, an entry for each."""
    return api.AllocatableResourcesResponse(
        devices=[
            api.ContainerDevices(resource_name=resource, device_ids=[name])
            for resource, names in ALLOCATABLE.items()
            for name in names
        ]
    )


@contextmanager
def kubelet(path: Path, **answers: Callable[[], Any]) -> Iterator[None]:
    """One that has these methods of PodResourcesLister."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            lambda request, context, answer=answer: answer(),
            lambda raw: raw,
            lambda message: message.SerializeToString(),
        )
        for name, answer in answers.items()
    }
    service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers)
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(0).wait()


@pytest.mark.promise("kubernetes-19")
def test_the_doctor_asks_the_kubelet(tmp_path: Path) -> None:
    """What it answers becomes a finding; a resource in several entries is one."""
    path = tmp_path / "kubelet.sock"
    with kubelet(path, List=listed, GetAllocatableResources=allocatable):
        facts = node_facts(path)
    (ann,) = facts.devices.containers
    assert ann.devices == {GPU: ("GPU-1::0", "GPU-2::0"), SEAT: ("seat-0",)}
    assert facts.devices.allocatable == ALLOCATABLE
    (finding,) = seats(dataclasses.replace(HEALTHY, node=facts))
    assert finding.level is Level.OK
    assert finding.what.startswith("1 of 2 seats of this node are taken, each with a GPU")


@pytest.mark.promise("kubernetes-19")
def test_an_older_kubelet(tmp_path: Path) -> None:
    """It tells who has what, and not what there is."""
    path = tmp_path / "kubelet.sock"
    with kubelet(path, List=listed):
        facts = node_facts(path)
    assert facts.devices.allocatable is None
    assert mistakes(facts.devices) == []
    (finding,) = seats(dataclasses.replace(HEALTHY, node=facts))
    assert finding.what.endswith("is too old to tell whether the plugin is registered.")


@pytest.mark.parametrize("answer", ["silence", "nonsense"])
def test_a_kubelet_that_cannot_be_asked(
    tmp_path: Path, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor says so, and goes on."""
    monkeypatch.setattr("jupyter_gpushare.kubelet.pod_resources.ANSWER_S_MAX", 0.5)
    path = tmp_path / "kubelet.sock"
    if answer == "silence":
        with kubelet(path):
            pass
        path.touch()
        facts = node_facts(path)
    else:
        with kubelet(path, GetAllocatableResources=allocatable):
            facts = node_facts(path)
    assert facts.problem.startswith(f"The kubelet does not answer at {path}: ")
    (finding,) = seats(dataclasses.replace(HEALTHY, node=facts))
    assert finding.level is Level.WARNING
    assert finding.remedy == "Look into its log."


def test_elsewhere_nothing_is_said(tmp_path: Path) -> None:
    """Most machines are no nodes of Kubernetes."""
    assert node_facts(tmp_path / "kubelet.sock") == NodeFacts()


def test_the_limit_of_the_schedulers_own_container() -> None:
    """No kernel runs under it, so it is too small for none."""
    narrow = machine_with("cgroup", path="/pod", version=2, bytes_max=GIB, bytes_used=GIB // 2)
    assert [each.check for each in bad(narrow)] == ["host-memory"]
    assert bad(dataclasses.replace(narrow, node=NodeFacts(socket="/kubelet.sock"))) == []
    assert not seats(HEALTHY)
