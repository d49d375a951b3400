"""The chart as Helm has rendered it (keep.py), against the schemas of a current Kubernetes: without
Helm, and of this very chart."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import jsonschema
import pytest

from jupyter_gpushare.cli.main import make_parser
from tests.charts import keep
from tests.charts.chart import CHART, container, the
from tests.charts.keep import NO_SCHEMA, VALUES, Outdated, kept, schema_of

ALWAYS = {"DaemonSet", "ConfigMap", "ServiceAccount", "NetworkPolicy"}
MORE = {"PodMonitor", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


@pytest.mark.promise(
    "kubernetes-1", "The chart renders to what a current Kubernetes takes, strictly checked"
)
@pytest.mark.parametrize("name", VALUES)
def test_the_schemas_of_kubernetes(name: str) -> None:
    """No field is misspelt. The Prometheus operator's own kind has no schema there."""
    objects = kept(name)
    for each in objects:
        if each["kind"] not in NO_SCHEMA:
            jsonschema.Draft202012Validator(schema_of(each["kind"])).validate(each)
    assert {each["kind"] for each in objects} == (ALWAYS if name == "smallest" else ALWAYS | MORE)


@pytest.mark.promise("kubernetes-1")
@pytest.mark.parametrize(
    "change", [{"hostPid": True}, {"hostPID": "yes"}, {"tolerations": {}}], ids=str
)
def test_a_wrong_field_is_found(change: dict[str, object]) -> None:
    """The check itself sees one."""
    daemon_set = the(kept("smallest"), "DaemonSet")
    daemon_set["spec"]["template"]["spec"].update(change)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema_of("DaemonSet")).validate(daemon_set)


@pytest.mark.promise("kubernetes-1")
@pytest.mark.parametrize("file", ["templates/daemonset.yaml", "values.yaml", "templates/new.yaml"])
def test_a_changed_chart_is_not_taken_for_the_old_one(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept is of no other chart: a template that was changed or added is told."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    monkeypatch.setattr(keep, "CHART", chart)
    kept("smallest")
    with (chart / file).open("a") as changed:
        changed.write("# a word\n")
    with pytest.raises(Outdated, match=r"Run make chart"):
        kept("smallest")


@pytest.mark.promise("kubernetes-4")
def test_what_the_pods_see_of_the_node() -> None:
    """Only the plugin has the kubelet's directory and the library's. Both containers may ask the
    kubelet which container has what."""
    objects = kept("everything")
    scheduler = {each["mountPath"] for each in container(objects, "scheduler")["volumeMounts"]}
    own = {"/run/jupyter-gpushare", "/etc/jupyter-gpushare", "/tmp"}
    pods = "/var/lib/kubelet/pod-resources"
    view = {"/var/run/secrets/gpushare", "/etc/jupyter-gpushare-view"}
    assert scheduler == {*own, *view, pods, "/var/run/nvidia-container-devices/all"}
    plugin = {each["name"]: each for each in container(objects, "plugin")["volumeMounts"]}
    assert plugin["plugins"]["mountPath"] == "/var/snap/kubelet/device-plugins"
    assert plugin["pods"] == {
        "name": "pods",
        "mountPath": "/var/lib/kubelet/pod-resources",
        "readOnly": True,
    }
    volumes = the(objects, "DaemonSet")["spec"]["template"]["spec"]["volumes"]
    paths = {each["name"]: each["hostPath"]["path"] for each in volumes if "hostPath" in each}
    assert paths["pods"] == "/var/snap/kubelet/pod-resources"


def test_who_may_call_whom() -> None:
    """Nobody calls the pods, but Prometheus where it is wanted; they call DNS and the hub."""
    policy = the(kept("smallest"), "NetworkPolicy")["spec"]
    assert policy["ingress"] == []
    names, hub = policy["egress"]
    assert {each["port"] for each in names["ports"]} == {53}
    assert hub["ports"] == [{"port": 8081, "protocol": "TCP"}]
    (where,) = hub["to"]
    assert where == {"podSelector": {"matchLabels": {"app": "jupyterhub", "component": "hub"}}}
    everything = kept("everything")
    monitored = the(everything, "NetworkPolicy")["spec"]
    assert monitored["ingress"] == [{"ports": [{"port": 9464, "protocol": "TCP"}]}]
    (where,) = monitored["egress"][1]["to"]
    assert where["namespaceSelector"] == {"matchLabels": {"hub": "yes"}}
    monitor = the(everything, "PodMonitor")["spec"]
    assert monitor["podMetricsEndpoints"] == [{"port": "metrics", "interval": "30s"}]
    (port,) = container(everything, "plugin")["ports"]
    assert port == {"name": "metrics", "containerPort": 9464}


def test_the_plugins_flags_are_those_that_there_are() -> None:
    """The verb takes what the chart gives it."""
    args = container(kept("everything"), "plugin")["args"]
    read = make_parser().parse_args(["kubelet-plugin", *args])
    assert (read.seats, read.metrics_port, read.unhealthy_after_s) == (3, 9464, 120)
    assert str(read.kubelet_dir) == "/var/snap/kubelet/device-plugins"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python reads TOML since 3.11")
def test_the_settings_file() -> None:
    """It is TOML that the scheduler reads."""
    import tomllib

    text = the(kept("everything"), "ConfigMap")["data"]["settings.toml"]
    assert tomllib.loads(text) == {"quantum_s": "5s", "overdue_policy": "kill", "credit_s": 2}
    assert tomllib.loads(the(kept("smallest"), "ConfigMap")["data"]["settings.toml"]) == {}
