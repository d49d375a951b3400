"""The images of a node and of the users' servers, as docs/kubernetes.md and docs/docker.md say to
make them. podman makes them; containerd imports them from one file."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from jupyter_gpushare.version import __version__
from tests.charts.test_page import block_with
from tests.cluster.images import base_image
from tests.cluster.kubernetes import STORE
from tests.cluster.podman import Podman
from tests.packaging.environments import build_wheel_without_panel
from tests.packaging.readme import blocks_under
from tests.support.paths import ROOT

STEPS = "Set it up"
ARCHIVE = STORE / "images.tar"


def node_image() -> str:
    """As the page's values name it."""
    return f"{block_with('seats')['image']['repository']}:{__version__}"


def servers_image() -> str:
    image = block_with("singleuser")["singleuser"]["image"]
    return f"{image['name']}:{image['tag']}"


def make_images() -> None:
    """Of this checkout; what they are made from was made once."""
    with TemporaryDirectory(dir=STORE, prefix="images-") as name:
        folder = Path(name)
        podman = Podman(folder)
        base = base_image(podman)
        wheel = build_wheel_without_panel(folder)
        (of_node,) = blocks_under(STEPS, "dockerfile", ROOT / "docs" / "kubernetes.md")
        (of_servers,) = blocks_under(STEPS, "dockerfile", ROOT / "docs" / "docker.md")
        first, _, rest = of_node.partition("\n")
        assert first.startswith("FROM python:")
        for image, text in (
            (node_image(), f"FROM {base}\n{rest}"),
            (servers_image(), of_servers),
        ):
            _build(podman, folder / image.replace("/", "-"), image, text, base, wheel)
        ARCHIVE.unlink(missing_ok=True)
        podman(
            "save", "--multi-image-archive", f"--output={ARCHIVE}", node_image(), servers_image()
        )
        podman("image", "prune", "--force")


def _build(podman: Podman, folder: Path, image: str, text: str, base: str, wheel: Path) -> None:
    folder.mkdir()
    shutil.copy2(wheel, folder)
    (folder / "Dockerfile").write_text(text)
    podman("build", "--network=none", f"--build-arg=BASE={base}", f"--tag={image}", folder)
