"""The chart as Helm renders it, against the schemas of a current Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpushare.scheduler.report.options import url_of
from tests.charts import keep
from tests.charts.chart import (
    EVERYTHING,
    SMALLEST,
    CannotRender,
    container,
    merged,
    rendered,
    the,
)

pytestmark = pytest.mark.full
SEAT = {"gpushare.jupyter.org/turn": "1"}
GPU = {"nvidia.com/gpu": "1"}


@pytest.mark.promise("kubernetes-1")
def test_what_is_kept_is_what_helm_makes() -> None:
    """Of this chart, now; and the schemas are those of the package."""
    for path, text in keep.made():
        assert path.read_text() == text, f"{path.name}: run make chart"


@pytest.mark.promise("kubernetes-1")
@pytest.mark.parametrize("given", [SMALLEST, EVERYTHING], ids=["smallest", "all"])
def test_the_schemas_of_kubernetes(given: dict[str, Any]) -> None:
    """No field is misspelt. The Prometheus operator's own kind has no schema there."""
    import kubernetes_validate

    objects = rendered(given)
    kinds = [each["kind"] for each in objects]
    for each in objects:
        if each["kind"] != "PodMonitor":
            kubernetes_validate.validate(each, keep.KUBERNETES, strict=True)
    always = {"DaemonSet", "ConfigMap", "ServiceAccount", "NetworkPolicy"}
    more = {"PodMonitor", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert set(kinds) == (always if given is SMALLEST else always | more)


@pytest.mark.promise("kubernetes-1")
def test_a_misspelt_field_is_found() -> None:
    """The check itself sees one."""
    import kubernetes_validate

    daemon_set = the(rendered(SMALLEST), "DaemonSet")
    daemon_set["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(daemon_set, keep.KUBERNETES, strict=True)


@pytest.mark.promise(
    "kubernetes-4",
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


@pytest.mark.promise("kubernetes-4")
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


@pytest.mark.promise("scheduler-59")
@pytest.mark.parametrize("host_pid", [False, True])
def test_the_scheduler_is_told_what_it_does_not_see(host_pid: bool) -> None:
    """So it refuses that policy itself, when somebody asks for it later."""
    args = container(rendered({**SMALLEST, "hostPID": host_pid}), "scheduler")["args"]
    assert ("--hidden-tenants" in args) is not host_pid


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


@pytest.mark.promise(
    "kubernetes-5",
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


@pytest.mark.promise(
    "kubernetes-6",
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
