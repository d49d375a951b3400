"""The view of all nodes, as the chart starts it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from jupyter_gpushare.cli.main import make_parser
from jupyter_gpushare.hub.view import SERVICE
from jupyter_gpushare.view.service import ViewOptions, options_for
from tests.charts.chart import SMALLEST, fenced, rendered, the, validator_of
from tests.support.paths import ROOT

pytestmark = pytest.mark.full
KUBERNETES = "1.37"
NAME = "gpushare-view"
WITH_VIEW: dict[str, Any] = {
    **SMALLEST,
    "imagePullSecrets": [{"name": "pull"}],
    "view": {"enabled": True, "baseUrl": "/base/", "existingClaim": "gpu-hours"},
    "networkPolicy": {"hub": {"namespaceSelector": {"matchLabels": {"hub": "yes"}}}},
}
OUTSIDE: dict[str, Any] = {**SMALLEST, "view": {"outside": True}}


def objects(given: dict[str, Any] = WITH_VIEW) -> list[dict[str, Any]]:
    """Those of the view alone."""
    found = rendered(given)
    of_nodes = [each["metadata"]["name"] for each in rendered(SMALLEST)]
    return [each for each in found if each["metadata"]["name"] not in of_nodes]


def options(given: dict[str, Any]) -> ViewOptions:
    """What the command of its container makes of flags and environment."""
    (container,) = the(objects(given), "Deployment")["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each.get("value", "a secret") for each in container["env"]}
    return options_for(make_parser().parse_args(["view", *container["args"]]), environment)


@pytest.mark.promise("kubernetes-1")
@pytest.mark.parametrize("given", [WITH_VIEW, {**SMALLEST, "view": {"enabled": True}}, OUTSIDE])
def test_the_schemas_of_kubernetes(given: dict[str, Any]) -> None:
    """Strictly, and by the schema of the values."""
    import kubernetes_validate

    assert validator_of(given) == []
    for each in objects(given):
        kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_without_it() -> None:
    """Nothing of the view is there unless it is asked for."""
    assert NAME not in str(rendered(SMALLEST))


@pytest.mark.promise(
    "kubernetes-8",
    "The view of the chart may ask whose a token is, and read pods of its namespace, and no more",
)
def test_what_it_may_do() -> None:
    """Not root, no capability, a root file system that is read-only."""
    found = objects()
    assert the(found, "ClusterRole")["rules"] == [
        {
            "apiGroups": ["authentication.k8s.io"],
            "resources": ["tokenreviews"],
            "verbs": ["create"],
        }
    ]
    assert the(found, "Role")["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    ]
    for kind, role in (("RoleBinding", "Role"), ("ClusterRoleBinding", "ClusterRole")):
        binding = the(found, kind)
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": NAME, "namespace": "jhub"}
        ]
        assert binding["roleRef"]["name"] == the(found, role)["metadata"]["name"]
    pod = the(found, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == NAME
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.promise("kubernetes-8")
def test_a_view_outside_of_the_cluster() -> None:
    """The chart makes its account with the same rights, and a token; it starts nothing."""
    (given,) = [
        each
        for each in map(yaml.safe_load, fenced(ROOT / "docs" / "view.md", "yaml"))
        if each.get("view", {}).get("outside")
    ]
    assert validator_of({**SMALLEST, **given}) == []
    # With the same address, the schedulers' own objects are the same.
    found = rendered({**SMALLEST, **given})
    inside = objects()
    for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"):
        assert the(found, kind) == the(inside, kind)
    assert {"Deployment", "Service"}.isdisjoint(each["kind"] for each in found)
    secret = the(found, "Secret")
    assert (secret["metadata"]["name"], secret["type"]) == (
        NAME,
        "kubernetes.io/service-account-token",
    )
    assert secret["metadata"]["annotations"] == {"kubernetes.io/service-account.name": NAME}
    assert "Secret" not in [each["kind"] for each in inside]


def test_it_is_no_pod_of_a_node() -> None:
    """The DaemonSet and its NetworkPolicy do not select it; its own objects do."""
    everything = rendered(WITH_VIEW)
    labels = the(everything, "Deployment")["spec"]["template"]["metadata"]["labels"]
    of_nodes = the(everything, "DaemonSet")["spec"]["selector"]["matchLabels"]
    assert not of_nodes.items() <= labels.items()
    for selector in (
        the(objects(), "Deployment")["spec"]["selector"]["matchLabels"],
        the(objects(), "Service")["spec"]["selector"],
        the(objects(), "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()


def test_its_flags_and_its_place() -> None:
    """The command takes them, and the accounts of the chart's schedulers may report."""
    found = options(WITH_VIEW)
    assert (found.host, found.port) == ("0.0.0.0", 10150)
    assert found.prefix == "/base/services/gpushare-view/"
    account = the(rendered(SMALLEST), "ServiceAccount")["metadata"]["name"]
    assert found.service_accounts == (f"jhub:{account}",)
    assert str(found.data_dir) == "/data/view"
    plain = options({**SMALLEST, "view": {"enabled": True}})
    assert (plain.prefix, plain.data_dir) == ("/services/gpushare-view/", None)


def test_who_may_call_it() -> None:
    """The hub and its proxy."""
    (rule,) = the(objects(), "NetworkPolicy")["spec"]["ingress"]
    assert rule["ports"] == [{"port": "http", "protocol": "TCP"}]
    components = [each["podSelector"]["matchLabels"]["component"] for each in rule["from"]]
    assert components == ["hub", "proxy"]
    assert all(
        each["namespaceSelector"] == {"matchLabels": {"hub": "yes"}} for each in rule["from"]
    )


def test_what_the_page_says() -> None:
    """The values in docs/view.md are the chart's, and the hub finds the view where they put it."""
    for_chart, for_hub, _ = map(yaml.safe_load, fenced(ROOT / "docs" / "view.md", "yaml"))
    assert validator_of({**SMALLEST, **for_chart}) == []
    service = the(objects({**SMALLEST, **for_chart}), "Service")
    (port,) = service["spec"]["ports"]
    url = for_hub["hub"]["services"][SERVICE]["url"]
    assert url == f"http://{service['metadata']['name']}:{port['port']}"
    (container,) = the(objects(), "Deployment")["spec"]["template"]["spec"]["containers"]
    (token,) = [each for each in container["env"] if "valueFrom" in each]
    assert token["valueFrom"]["secretKeyRef"] == {
        "name": "hub",
        "key": f"hub.services.{SERVICE}.apiToken",
    }
