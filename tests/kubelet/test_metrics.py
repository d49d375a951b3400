"""What Prometheus reads of a node's plugin."""

from __future__ import annotations

import http.client
import re
import socket

import pytest

from jupyter_gpushare.kubelet.metrics import PluginFigures, rendered
from tests.kubelet.conftest import SEATS, Node
from tests.kubelet.test_pods import allocatable, kubelet, listed
from tests.support.ports import free_port
from tests.support.waits import WAIT_S_MAX, wait_until


def asked(port: int, path: str = "/metrics") -> tuple[int, str]:
    """As soon as somebody listens there."""
    wait_until(lambda: _listens(port), f"somebody to listen at {port}")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S_MAX)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def values(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", text, re.M)}


@pytest.mark.promise(
    "kubernetes-15",
    "Prometheus reads from a node's plugin whether its seats are healthy, and how many mistakes "
    "the doctor finds there",
)
def test_a_node(node: Node) -> None:
    """With its kubelet, and without one."""
    port = free_port()
    with node.plugin(metrics_port=port):
        status, text = asked(port)
        assert status == 200
        assert values(text)["gpushare_seats_healthy"] == 0
        assert "gpushare_node_mistakes" not in text
        with (
            node.kubelet() as manager,
            kubelet(node.pods_socket, List=listed, GetAllocatableResources=allocatable),
        ):
            manager.wait_for_seats(SEATS)
            found = values(asked(port)[1])
    assert found.pop("gpushare_scheduler_silent_seconds") >= 0
    assert found == {
        "gpushare_seats": SEATS,
        "gpushare_seats_healthy": SEATS,
        "gpushare_kubelet_watches": 1,
        "gpushare_node_mistakes": 0,
    }


def test_what_callers_may_do(node: Node) -> None:
    """There is one path; a caller that says too much is hung up on, and others are served."""
    port = free_port()
    with node.plugin(metrics_port=port):
        assert asked(port, "/secret")[0] == 404
        with socket.create_connection(("127.0.0.1", port)) as flood, pytest.raises(OSError):
            for _ in range(1000):
                flood.sendall(b"x" * 65536)
        assert asked(port)[0] == 200


def test_a_port_that_is_taken(node: Node) -> None:
    """The plugin ends with a sentence: nobody would read its figures."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        with node.plugin(metrics_port=taken.getsockname()[1]) as running:
            assert running.join() == 1
    assert running.plugin is not None
    assert re.match(r"The port \d+ cannot be opened: .*\. Give --metrics", running.plugin.error)


def test_the_format() -> None:
    """Each figure has its meaning and its kind before it."""
    text = rendered(
        PluginFigures(seats=8, healthy=False, watched=True, silent_s=130.04, mistakes=None)
    )
    assert text.startswith(
        "# HELP gpushare_seats_healthy Seats of the node that pods can get.\n"
        "# TYPE gpushare_seats_healthy gauge\ngpushare_seats_healthy 0\n"
    )
    assert "gpushare_scheduler_silent_seconds 130\n" in text


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
