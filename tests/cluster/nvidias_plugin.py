"""Stands for NVIDIA's device plugin with time-slicing: replicas of one GPU, by its UUID.

`python -m tests.cluster.nvidias_plugin UUID REPLICAS` registers once, and serves until it is ended.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from jupyter_gpushare.kubelet.api import device_plugin_pb2 as api

DIRECTORY = Path("/var/lib/kubelet/device-plugins")
SOCKET = "nvidia.sock"
RESOURCE = "nvidia.com/gpu"


class Replicas:
    """The methods that a kubelet calls."""

    def __init__(self, uuid: str, number: int) -> None:
        self._uuid = uuid
        self._devices = [
            api.Device(ID=f"{uuid}::{index}", health="Healthy") for index in range(number)
        ]

    def options(self, request: Any, context: Any) -> api.DevicePluginOptions:
        return api.DevicePluginOptions()

    def devices(self, request: Any, context: Any) -> Iterator[api.ListAndWatchResponse]:
        yield api.ListAndWatchResponse(devices=self._devices)
        threading.Event().wait()

    def allocate(self, request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
        """A variable, which NVIDIA's runtime reads."""
        answer = api.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": self._uuid})
        return api.AllocateResponse(
            container_responses=[answer for _ in request.container_requests]
        )

    def handlers(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "v1beta1.DevicePlugin",
            {
                "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                    self.options, api.Empty.FromString, api.DevicePluginOptions.SerializeToString
                ),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self.devices, api.Empty.FromString, api.ListAndWatchResponse.SerializeToString
                ),
                "Allocate": grpc.unary_unary_rpc_method_handler(
                    self.allocate,
                    api.AllocateRequest.FromString,
                    api.AllocateResponse.SerializeToString,
                ),
            },
        )


def main(uuid: str, number: int) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Replicas(uuid, number).handlers(),))
    server.add_insecure_port(f"unix:{DIRECTORY / SOCKET}")
    server.start()
    request = api.RegisterRequest(version="v1beta1", endpoint=SOCKET, resource_name=RESOURCE)
    with grpc.insecure_channel(f"unix:{DIRECTORY / 'kubelet.sock'}") as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=api.RegisterRequest.SerializeToString,
            response_deserializer=api.Empty.FromString,
        )
        call(request, timeout=20, wait_for_ready=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
