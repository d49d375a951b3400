"""Asks this node's kubelet which containers have which devices, by its PodResources API, v1."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc

from .api import pod_resources_pb2 as api
from .pods import Container, NodeDevices

ANSWER_S_MAX = 5.0
ANSWER_BYTES_MAX = 16 << 20


class KubeletSilent(Exception):
    """The message says why, in a clause."""


def node_devices(path: Path) -> NodeDevices:
    """Containers without devices are left out. Raises KubeletSilent."""
    options = [("grpc.max_receive_message_length", ANSWER_BYTES_MAX)]
    with grpc.insecure_channel(f"unix:{path}", options) as channel:
        try:
            listed = _call(
                channel, "List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse
            )
            return NodeDevices(tuple(_containers(listed)), _allocatable(channel))
        except grpc.RpcError as error:
            said = " ".join((error.details() or error.code().name).split())
            raise KubeletSilent(said[:300].rstrip(".")) from error


def _containers(answer: api.ListPodResourcesResponse) -> Iterable[Container]:
    for pod in answer.pod_resources:
        for each in pod.containers:
            if devices := _by_resource(each.devices):
                yield Container(pod.namespace, pod.name, each.name, devices)


def _allocatable(channel: grpc.Channel) -> dict[str, tuple[str, ...]] | None:
    try:
        answer = _call(
            channel,
            "GetAllocatableResources",
            api.AllocatableResourcesRequest(),
            api.AllocatableResourcesResponse,
        )
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return None
        raise
    return _by_resource(answer.devices)


def _by_resource(devices: Iterable[api.ContainerDevices]) -> dict[str, tuple[str, ...]]:
    """A resource may stand in several entries, one for each part of the machine."""
    found: dict[str, tuple[str, ...]] = {}
    for each in devices:
        found[each.resource_name] = (*found.get(each.resource_name, ()), *each.device_ids)
    return found


def _call(channel: grpc.Channel, method: str, request: Any, answer: Any) -> Any:
    stub = channel.unary_unary(
        f"/v1.PodResourcesLister/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=answer.FromString,
    )
    return stub(request, timeout=ANSWER_S_MAX)
