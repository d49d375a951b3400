"""The messages are the kubelet's, number by number and byte by byte."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from jupyter_gpushare.kubelet.api import device_plugin_pb2 as device_plugin
from jupyter_gpushare.kubelet.api import pod_resources_pb2 as pod_resources

STRING, BOOL, MESSAGE = (
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_BOOL,
    FieldDescriptor.TYPE_MESSAGE,
)

# Written by hand from Kubernetes' own deviceplugin/v1beta1 and podresources/v1.
NUMBERS = {
    "v1beta1.Empty": {},
    "v1beta1.DevicePluginOptions": {
        "pre_start_required": (1, BOOL),
        "get_preferred_allocation_available": (2, BOOL),
    },
    "v1beta1.RegisterRequest": {
        "version": (1, STRING),
        "endpoint": (2, STRING),
        "resource_name": (3, STRING),
        "options": (4, MESSAGE),
    },
    "v1beta1.ListAndWatchResponse": {"devices": (1, MESSAGE)},
    "v1beta1.Device": {"ID": (1, STRING), "health": (2, STRING)},
    "v1beta1.AllocateRequest": {"container_requests": (1, MESSAGE)},
    "v1beta1.ContainerAllocateRequest": {"devices_ids": (1, STRING)},
    "v1beta1.AllocateResponse": {"container_responses": (1, MESSAGE)},
    "v1beta1.ContainerAllocateResponse": {"envs": (1, MESSAGE), "mounts": (2, MESSAGE)},
    "v1beta1.Mount": {
        "container_path": (1, STRING),
        "host_path": (2, STRING),
        "read_only": (3, BOOL),
    },
    "v1.ListPodResourcesRequest": {},
    "v1.ListPodResourcesResponse": {"pod_resources": (1, MESSAGE)},
    "v1.PodResources": {
        "name": (1, STRING),
        "namespace": (2, STRING),
        "containers": (3, MESSAGE),
    },
    "v1.ContainerResources": {"name": (1, STRING), "devices": (2, MESSAGE)},
    "v1.ContainerDevices": {"resource_name": (1, STRING), "device_ids": (2, STRING)},
    "v1.AllocatableResourcesRequest": {},
    "v1.AllocatableResourcesResponse": {"devices": (1, MESSAGE)},
}


@pytest.mark.promise(
    "kubernetes-20", "The messages have the numbers that Kubernetes gives them, byte by byte"
)
def test_each_field_has_its_number() -> None:
    """All messages that we have are Kubernetes' own, as far as we have their fields."""
    found = {
        message.full_name: {each.name: (each.number, each.type) for each in message.fields}
        for module in (device_plugin, pod_resources)
        for message in module.DESCRIPTOR.message_types_by_name.values()
    }
    assert found == NUMBERS


@pytest.mark.promise("kubernetes-20")
@pytest.mark.parametrize(
    ("message", "golden"),
    [
        (
            device_plugin.RegisterRequest(
                version="v1beta1", endpoint="a.sock", resource_name="b/c", options={}
            ),
            b"\x0a\x07v1beta1\x12\x06a.sock\x1a\x03b/c\x22\x00",
        ),
        (
            device_plugin.ListAndWatchResponse(devices=[{"ID": "seat-0", "health": "Healthy"}]),
            b"\x0a\x11\x0a\x06seat-0\x12\x07Healthy",
        ),
        (
            device_plugin.AllocateResponse(
                container_responses=[
                    {
                        "envs": {"A": "b"},
                        "mounts": [{"container_path": "/i", "host_path": "/n", "read_only": True}],
                    }
                ]
            ),
            b"\x0a\x14\x0a\x06\x0a\x01A\x12\x01b\x12\x0a\x0a\x02/i\x12\x02/n\x18\x01",
        ),
        (
            pod_resources.ListPodResourcesResponse(
                pod_resources=[
                    {
                        "name": "p",
                        "namespace": "n",
                        "containers": [
                            {"name": "c", "devices": [{"resource_name": "r", "device_ids": ["d"]}]}
                        ],
                    }
                ]
            ),
            b"\x0a\x13\x0a\x01p\x12\x01n\x1a\x0b\x0a\x01c\x12\x06\x0a\x01r\x12\x01d",
        ),
    ],
    ids=["register", "list", "allocate", "pods"],
)
def test_golden_bytes(message: Message, golden: bytes) -> None:
    """Written by hand; reading them back gives the same message."""
    assert message.SerializeToString() == golden
    assert type(message).FromString(golden) == message


@pytest.mark.promise("kubernetes-20")
def test_what_later_kubelets_add_is_no_hindrance() -> None:
    """A pod's processors and memory, and the topology of a device, are skipped."""
    container = b"\x0a\x01c\x12\x06\x0a\x01r\x12\x01d\x1a\x02\x01\x02\x2a\x01x"
    with_processors = b"\x0a\x1a\x0a\x01p\x12\x01n\x1a\x12" + container
    read = pod_resources.ListPodResourcesResponse.FromString(with_processors)
    (pod,) = read.pod_resources
    assert list(pod.containers[0].devices[0].device_ids) == ["d"]
