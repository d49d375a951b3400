"""The chart as Helm renders it, against the schemas of a current Kubernetes."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from jupyter_gpushare.cli.main import make_parser
from jupyter_gpushare.scheduler.report.options import url_of
from tests.charts.chart import EVERYTHING, SMALLEST, CannotRender, merged, rendered, the

pytestmark = pytest.mark.full
KUBERNETES = "1.37"
SEAT = {"gpushare.jupyter.org/turn": "1"}
GPU = {"nvidia.com/gpu": "1"}


def container(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    pod = the(objects, "DaemonSet")["spec"]["template"]["spec"]
    (found,) = [each for each in pod["containers"] if each["name"] == name]
    return dict(found)


@pytest.mark.promise(
    "kubernetes", "The chart renders to what a current Kubernetes takes, strictly checked"
)
@pytest.mark.parametrize("given", [SMALLEST, EVERYTHING], ids=["smallest", "all"])
def test_the_schemas_of_kubernetes(given: dict[str, Any]) -> None:
    """No field is misspelt. The Prometheus operator's own kind has no schema there."""
    import kubernetes_validate

    objects = rendered(given)
    kinds = [each["kind"] for each in objects]
    for each in objects:
        if each["kind"] != "PodMonitor":
            kubernetes_validate.validate(each, KUBERNETES, strict=True)
    always = {"DaemonSet", "ConfigMap", "ServiceAccount", "NetworkPolicy"}
    more = {"PodMonitor", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert set(kinds) == (always if given is SMALLEST else always | more)


@pytest.mark.promise("The chart renders to what a current...")
def test_a_misspelt_field_is_found() -> None:
    """The check itself sees one."""
    import kubernetes_validate

    daemon_set = the(rendered(SMALLEST), "DaemonSet")
    daemon_set["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(daemon_set, KUBERNETES, strict=True)


@pytest.mark.promise(
    "kubernetes",
    "The pods of the chart are not privileged and have no rights at the API; with hostPID the "
    "scheduler has the two capabilities that it needs to see processes, and KILL only for the "
    "policy that kills",
)
def test_what_the_pods_may_do() -> None:
    """Root without any capability, on a root file system that is read-only."""
    smallest = rendered(SMALLEST)
    pod = the(smallest, "DaemonSet")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostPID", "hostNetwork", "hostIPC"} & set(pod)
    for each in pod["containers"]:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    seeing = rendered({**SMALLEST, "hostPID": True})
    assert the(seeing, "DaemonSet")["spec"]["template"]["spec"]["hostPID"] is True
    added = container(seeing, "scheduler")["securityContext"]["capabilities"]["add"]
    assert added == ["SYS_PTRACE", "DAC_READ_SEARCH"]
    assert "add" not in container(seeing, "plugin")["securityContext"]["capabilities"]
    killing = container(rendered(EVERYTHING), "scheduler")["securityContext"]["capabilities"]
    assert killing["add"] == ["SYS_PTRACE", "DAC_READ_SEARCH", "KILL"]
    assert not {"Role", "ClusterRole", "RoleBinding"} & {each["kind"] for each in smallest}


@pytest.mark.promise("The pods of the chart are not...")
def test_what_the_pods_see_of_the_node() -> None:
    """Only the plugin has the kubelet's directory and the library's. Both containers may ask the
    kubelet which container has what."""
    objects = rendered(EVERYTHING)
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


@pytest.mark.promise("The pods of the chart are not...")
@pytest.mark.parametrize(
    "scheduler",
    [{"settings": {"overdue_policy": "kill"}}, {"args": ["--overdue-policy=kill"]}],
    ids=["setting", "flag"],
)
def test_the_policy_that_kills_needs_to_see(scheduler: dict[str, Any]) -> None:
    """Without hostPID it is refused, with a sentence on what to do."""
    with pytest.raises(CannotRender, match="Set hostPID to true, or leave the policy at warn"):
        rendered({**SMALLEST, "scheduler": scheduler})
    assert rendered({**SMALLEST, "hostPID": True, "scheduler": scheduler})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"image": {"repository": ""}}, "There is no image.repository. Build an image"),
        ({"hub": {"apiUrl": ""}}, "There is no hub.apiUrl, .* Give the address"),
        ({"sets": 1}, "additional properties 'sets' not allowed"),
    ],
)
def test_what_cannot_be_rendered(given: dict[str, Any], words: str) -> None:
    """Helm says what is wrong and what to do."""
    with pytest.raises(CannotRender, match=words):
        rendered(merged(SMALLEST, given))


def test_how_the_scheduler_comes_to_nvml() -> None:
    """By NVIDIA's runtime and two variables; the plugin asks for no device."""
    objects = rendered(SMALLEST)
    assert the(objects, "DaemonSet")["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"
    scheduler = {e["name"]: e["value"] for e in container(objects, "scheduler")["env"]}
    assert scheduler["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert scheduler["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
    plugin = {e["name"]: e["value"] for e in container(objects, "plugin")["env"]}
    assert plugin["NVIDIA_VISIBLE_DEVICES"] == "void"
    default = rendered(merged(SMALLEST, {"nvml": {"runtimeClassName": ""}}))
    assert "runtimeClassName" not in the(default, "DaemonSet")["spec"]["template"]["spec"]


def test_who_may_call_whom() -> None:
    """Nobody calls the pods, but Prometheus where it is wanted; they call DNS and the hub."""
    policy = the(rendered(SMALLEST), "NetworkPolicy")["spec"]
    assert policy["ingress"] == []
    names, hub = policy["egress"]
    assert {each["port"] for each in names["ports"]} == {53}
    assert hub["ports"] == [{"port": 8081, "protocol": "TCP"}]
    (where,) = hub["to"]
    assert where == {"podSelector": {"matchLabels": {"app": "jupyterhub", "component": "hub"}}}
    everything = rendered(EVERYTHING)
    monitored = the(everything, "NetworkPolicy")["spec"]
    assert monitored["ingress"] == [{"ports": [{"port": 9464, "protocol": "TCP"}]}]
    (where,) = monitored["egress"][1]["to"]
    assert where["namespaceSelector"] == {"matchLabels": {"hub": "yes"}}
    monitor = the(everything, "PodMonitor")["spec"]
    assert monitor["podMetricsEndpoints"] == [{"port": "metrics", "interval": "30s"}]
    (port,) = container(everything, "plugin")["ports"]
    assert port == {"name": "metrics", "containerPort": 9464}


@pytest.mark.promise(
    "kubernetes",
    "With a view, the scheduler of a node has a token that is for the view alone, and is renewed",
)
def test_reports_to_the_view() -> None:
    """The scheduler has it and the plugin does not; without a view, nobody has one."""
    everything = rendered(EVERYTHING)
    args = container(everything, "scheduler")["args"]
    url = "https://hub.example/services/gpushare-view/"
    assert [each for each in args if each.startswith("--report")] == [
        f"--report-to={url}",
        "--report-token-file=/var/run/secrets/gpushare/token",
        "--report-platform=kubernetes",
        "--report-ca=/etc/jupyter-gpushare-view/ca.crt",
    ]
    assert url_of(url)
    pod = the(everything, "DaemonSet")["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    (source,) = volumes["view-token"]["projected"]["sources"]
    assert source["serviceAccountToken"] == {
        "path": "token",
        "audience": "gpushare",
        "expirationSeconds": 3600,
    }
    assert volumes["view-ca"]["configMap"] == {"name": "authority"}
    plugin = container(everything, "plugin")["volumeMounts"]
    assert not {"view-token", "view-ca"} & {each["name"] for each in plugin}
    (rule,) = the(everything, "NetworkPolicy")["spec"]["egress"][2:]
    assert rule == {
        "ports": [{"port": 8443, "protocol": "TCP"}],
        "to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
    }
    without = rendered(SMALLEST)
    assert "view" not in str(the(without, "DaemonSet")["spec"])
    assert len(the(without, "NetworkPolicy")["spec"]["egress"]) == 2
    open_to = rendered({**SMALLEST, "view": {"url": url}})
    assert the(open_to, "NetworkPolicy")["spec"]["egress"][2] == {
        "ports": [{"port": 443, "protocol": "TCP"}]
    }


def test_the_plugins_flags_are_those_that_there_are() -> None:
    """The verb takes what the chart gives it."""
    args = container(rendered(EVERYTHING), "plugin")["args"]
    read = make_parser().parse_args(["kubelet-plugin", *args])
    assert (read.seats, read.metrics_port, read.unhealthy_after_s) == (3, 9464, 120)
    assert str(read.kubelet_dir) == "/var/snap/kubelet/device-plugins"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python reads TOML since 3.11")
def test_the_settings_file() -> None:
    """It is TOML that the scheduler reads."""
    import tomllib

    text = the(rendered(EVERYTHING), "ConfigMap")["data"]["settings.toml"]
    assert tomllib.loads(text) == {"quantum_s": "5s", "overdue_policy": "kill", "credit_s": 2}
    assert tomllib.loads(the(rendered(SMALLEST), "ConfigMap")["data"]["settings.toml"]) == {}


@pytest.mark.promise(
    "kubernetes",
    "The optional admission policy refuses a pod in which a container asks for a GPU of NVIDIA's "
    "and for no seat, and no other pod",
)
@pytest.mark.parametrize(
    ("limits", "is_admitted"),
    [
        ([None], True),
        ([{}], True),
        ([{"cpu": "1"}], True),
        ([{**GPU, **SEAT}], True),
        ([GPU], False),
        ([{"nvidia.com/mig-1g.10gb": "1"}], False),
        ([{**GPU, **SEAT}, GPU], False),
        ([SEAT], True),
    ],
    ids=["no-resources", "no-limits", "cpu", "both", "gpu", "mig", "second", "seat"],
)
@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_the_admission_policy(
    limits: list[dict[str, str] | None], is_admitted: bool, where: str
) -> None:
    """Its expressions, by another implementation of their language."""
    import celpy

    spec = the(rendered(EVERYTHING), "ValidatingAdmissionPolicy")["spec"]
    plain: list[dict[str, Any]] = [{"name": "plain"}]
    made = [{} if each is None else {"resources": {"limits": each}} for each in limits]
    pod = {"spec": {"containers": plain, where: made}}
    language = celpy.Environment()

    def value(expression: str, **names: Any) -> Any:
        return language.program(language.compile(expression)).evaluate(names)

    (variable,) = spec["variables"]
    containers = value(variable["expression"], object=celpy.json_to_cel(pod))
    (rule,) = spec["validations"]
    named = {"containers": containers}
    assert bool(value(rule["expression"], variables=celpy.celtypes.MapType(named))) is is_admitted
    binding = the(rendered(EVERYTHING), "ValidatingAdmissionPolicyBinding")["spec"]
    assert (
        binding["policyName"]
        == the(rendered(EVERYTHING), "ValidatingAdmissionPolicy")["metadata"]["name"]
    )
    (where_it_counts,) = binding["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert where_it_counts["values"] == ["jhub", "labs"]
