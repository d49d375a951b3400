"""A kubelet as a device plugin sees it: the real protocol over a real socket.

As the real one does, it removes all other files of its directory when it starts, connects to a
plugin before it answers its registration, watches the plugin's list, and lets a later registration
of a resource take the place of an earlier one. It admits a pod only to a healthy device. `seen`
holds what happened, in order. Every wait has a limit."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from jupyter_gpushare.kubelet.api import device_plugin_pb2 as api
from tests.support.waits import WAIT_S_MAX

CHECKPOINT = "kubelet_internal_checkpoint"


class NotAdmitted(Exception):
    """The pod has failed, for good."""


@dataclass
class Plugin:
    """A registered plugin: its list as it was last told."""

    channel: grpc.Channel
    endpoint: str
    devices: dict[str, str] = field(default_factory=dict)
    watch: Any = None
    is_over: bool = False


class FakeKubelet:
    """One kubelet's life, from construction to `stop`."""

    def __init__(
        self, directory: Path, *, versions: tuple[str, ...] = ("v1beta1",), answers_s: float = 0.0
    ) -> None:
        self.directory = directory
        self.versions = versions
        self.answers_s = answers_s
        """How long it takes to answer a registration."""
        self.is_forgetful = False
        """It answers registrations and then does nothing of what they are for."""
        self.seen: list[str] = []
        self.plugins: dict[str, Plugin] = {}
        self._changed = threading.Condition()
        for each in directory.iterdir():
            if each.name != CHECKPOINT:
                each.unlink()
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        handler = grpc.unary_unary_rpc_method_handler(
            self._register, api.RegisterRequest.FromString, api.Empty.SerializeToString
        )
        handlers = grpc.method_handlers_generic_handler(
            "v1beta1.Registration", {"Register": handler}
        )
        self._server.add_generic_rpc_handlers((handlers,))
        self.socket = directory / "kubelet.sock"
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def __enter__(self) -> FakeKubelet:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """As its process ends: connections break, and the socket's file stays behind."""
        for plugin in self.plugins.values():
            plugin.channel.close()
        kept = self.socket.with_suffix(".kept")
        with contextlib.suppress(FileNotFoundError):
            self.socket.rename(kept)  # gRPC would remove it
        self._server.stop(0).wait(WAIT_S_MAX)
        with contextlib.suppress(FileNotFoundError):
            kept.rename(self.socket)

    def forget(self, resource: str) -> None:
        """It drops a plugin for a reason of its own."""
        self.plugins[resource].watch.cancel()

    def _register(self, request: api.RegisterRequest, context: Any) -> api.Empty:
        self._note(f"register {request.resource_name} {request.endpoint}")
        time.sleep(self.answers_s)
        if request.version not in self.versions:
            said = f'requested API version "{request.version}" is not supported by kubelet'
            context.abort(grpc.StatusCode.UNKNOWN, said)
        if self.is_forgetful:
            return api.Empty()
        channel = grpc.insecure_channel(f"unix:{self.directory / request.endpoint}")
        grpc.channel_ready_future(channel).result(timeout=WAIT_S_MAX)
        plugin = Plugin(channel, request.endpoint)
        with self._changed:
            earlier = self.plugins.get(request.resource_name)
            self.plugins[request.resource_name] = plugin
        if earlier is not None and earlier.watch is not None:
            earlier.watch.cancel()
        threading.Thread(target=self._watch, args=(plugin,), daemon=True).start()
        return api.Empty()

    def _watch(self, plugin: Plugin) -> None:
        call = plugin.channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=api.Empty.SerializeToString,
            response_deserializer=api.ListAndWatchResponse.FromString,
        )
        plugin.watch = call(api.Empty())
        with contextlib.suppress(grpc.RpcError, ValueError):
            for answer in plugin.watch:
                with self._changed:
                    plugin.devices = {each.ID: each.health for each in answer.devices}
                    self._changed.notify_all()
        with self._changed:
            plugin.is_over = True
            plugin.devices = {}
            self._changed.notify_all()
        self._note("watch over")

    def _note(self, what: str) -> None:
        with self._changed:
            self.seen.append(what)
            self._changed.notify_all()

    # ---- for tests -----------------------------------------------------------------------------

    def healthy(self, resource: str = "gpushare.jupyter.org/turn") -> int:
        """How many seats a pod could get now: `allocatable` of the node."""
        return self.told(resource).count("Healthy")

    def told(self, resource: str = "gpushare.jupyter.org/turn") -> list[str]:
        """The health of each seat that it knows of."""
        plugin = self.plugins.get(resource)
        return list(plugin.devices.values()) if plugin else []

    def wait_until(self, condition: Callable[[], bool], *, wait_s: float = WAIT_S_MAX) -> None:
        """Some conditions are not the kubelet's, so they are looked at every now and then."""
        end_s = time.monotonic() + wait_s
        with self._changed:
            while not condition():
                if time.monotonic() > end_s:
                    raise AssertionError(f"it did not come to be; seen: {self.seen}")
                self._changed.wait(0.02)

    def wait_for_seats(self, number: int) -> None:
        self.wait_until(lambda: self.healthy() == number)

    def admit(
        self, resource: str = "gpushare.jupyter.org/turn", *, containers: int = 1
    ) -> list[api.ContainerAllocateResponse]:
        """A pod with so many containers that ask for one seat each."""
        plugin = self.plugins[resource]
        healthy = sorted(name for name, health in plugin.devices.items() if health == "Healthy")
        if len(healthy) < containers:
            raise NotAdmitted("UnexpectedAdmissionError")
        request = api.AllocateRequest(
            container_requests=[
                api.ContainerAllocateRequest(devices_ids=[name]) for name in healthy[:containers]
            ]
        )
        return list(self.call("Allocate", request, api.AllocateResponse).container_responses)

    def call(self, method: str, request: Any, answer: Any) -> Any:
        """Any method of the registered plugin."""
        (plugin,) = self.plugins.values()
        stub = plugin.channel.unary_unary(
            f"/v1beta1.DevicePlugin/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return stub(request, timeout=WAIT_S_MAX)
