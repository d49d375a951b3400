"""`jupyter gpushare preload`, and what a hook in /etc/ld.so.preload does to programs. All of it in
a mount namespace whose /etc is an overlay: the machine's own is never written to."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.kernel import loadable
from jupyter_gpushare.kernel.environment import LibraryMissing
from jupyter_gpushare.kernel.loadable import loadable_library, system_preloads, why_not_here
from tests.support.paths import HOOK_LIBRARY, ROOT
from tests.support.waits import WAIT_S_MAX

LIST, KEPT = "/etc/ld.so.preload", "/usr/local/lib/jupyter-gpushare/libgpushare.so"
OVERLAID = ("/usr/local/lib", "/etc")  # in this order, for `mount` reads the list as well
PRELOAD = [sys.executable, "-m", "jupyter_gpushare.cli.main", "preload"]
ASK = "import ctypes; print(ctypes.CDLL(None).gpushare_api_version())"
HELLO = '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n'


class Image:
    """A root file system of its own, kept from step to step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.layers = {path: folder / path.strip("/").replace("/", "-") for path in OVERLAID}
        for layer in self.layers.values():
            for name in ("upper", "work"):
                (layer / name).mkdir(parents=True)

    def __call__(self, *words: str | Path, **extra: str) -> subprocess.CompletedProcess[str]:
        mounts = [
            f"mount -t overlay overlay -o lowerdir={path},upperdir={layer / 'upper'},"
            f"workdir={layer / 'work'} {path}"
            for path, layer in self.layers.items()
        ]
        script = " && ".join([*mounts, 'exec "$@"'])
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", script, "sh"]
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(self.folder), **extra}
        return subprocess.run(
            [*command, *map(str, words)],
            env=env,
            capture_output=True,
            text=True,
            timeout=WAIT_S_MAX,
        )

    @property
    def list(self) -> Path:
        """The dynamic loader's, as it was left."""
        return self.layers["/etc"] / "upper" / "ld.so.preload"

    def name_by_hand(self, library: Path) -> None:
        self.list.write_text(f"{library}\n")


@pytest.fixture
def image(tmp_path: Path) -> Image:
    assert not Path(LIST).exists(), "this machine has a list of its own"
    return Image(tmp_path / "image")


@pytest.fixture(scope="module")
def hello(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A program that says hello."""
    folder = tmp_path_factory.mktemp("hello")

    def built(*flags: str) -> Path:
        (folder / "hello.c").write_text(HELLO)
        output = folder / f"hello{'-'.join(flags)}"
        subprocess.run(["cc", *flags, "-o", output, folder / "hello.c"], check=True)
        return output

    return built


def older_glibc(image: bytes) -> bytes:
    """For a C library that nobody has yet: as a new hook on an old image."""
    assert b"GLIBC_2.34" in image
    return image.replace(b"GLIBC_2.34", b"GLIBC_9.34")


def other_processor(image: bytes) -> bytes:
    return image[:18] + b"\xb7\x00" + image[20:]


@pytest.mark.promise(
    "jupyter-1",
    "An image whose kernels lose LD_PRELOAD can name the hook in /etc/ld.so.preload, and programs "
    "there work as before",
)
def test_installed_and_removed(image: Image, hello: Callable[..., Path]) -> None:
    """Every program has the hook, which does nothing in them and says nothing; static ones do not.
    What others have in the list stays. Twice changes nothing."""
    other = shutil.copy(hello("-shared", "-fPIC"), image.folder / "other.so")
    image.name_by_hand(Path(other))
    for _ in range(2):
        done = image(*PRELOAD, "install")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{LIST} names {KEPT}.\n"
    assert image.list.read_text() == f"{other}\n{KEPT}\n"
    asked = image(sys.executable, "-c", ASK)
    assert (asked.stdout, asked.stderr) == ("1\n", "")
    for flags in ((), ("-static",)):
        said = image(hello(*flags))
        assert (said.returncode, said.stdout, said.stderr) == (0, "hello\n", "")
    done = image(*PRELOAD, "remove")
    assert done.stdout == f"{LIST} does not name {KEPT}.\n"
    assert image.list.read_text() == f"{other}\n"
    assert not (image.layers["/usr/local/lib"] / "upper" / KEPT[len("/usr/local/lib/") :]).exists()


def test_a_list_that_was_not_there(image: Image) -> None:
    """It is gone again, and the machine's own was never there."""
    assert image(*PRELOAD, "install").returncode == 0
    assert image.list.read_text() == f"{KEPT}\n"
    assert image(*PRELOAD, "remove").returncode == 0
    assert not image.list.exists() or image.list.is_char_device()
    assert image(*PRELOAD, "show").stdout == f"{LIST} does not name {KEPT}.\n"
    assert not Path(LIST).exists()


WITH_ANOTHER = """
import sys
from pathlib import Path
from jupyter_gpushare.client import paths
paths.PACKAGED_LIBRARY = Path(sys.argv.pop(1))
from jupyter_gpushare.cli.main import main
sys.exit(main())
"""
BROKEN = {
    "old glibc": (older_glibc, "needs glibc 9.34, and this system has"),
    "another processor": (other_processor, "is for another kind of processor"),
    "no library": (lambda image: b"a text", "cannot be used, because"),
}


@pytest.mark.promise(
    "bad-input-21",
    "A hook that programs of an image cannot load (another processor, an old glibc, musl) is never "
    "put into them: kernels start without it, and say why",
)
@pytest.mark.parametrize("case", BROKEN)
def test_a_library_that_programs_cannot_load(image: Image, tmp_path: Path, case: str) -> None:
    """Neither is it named in the list, nor does a kernel get it."""
    change, words = BROKEN[case]
    library = tmp_path / "libgpushare.so"
    library.write_bytes(change(HOOK_LIBRARY.read_bytes()))
    done = image(sys.executable, "-c", WITH_ANOTHER, library, "preload", "install")
    assert done.returncode == 2
    assert words in done.stderr and "Nothing was written." in done.stderr
    assert not image.list.exists()
    with pytest.raises(LibraryMissing, match=words):
        loadable_library({"GPUSHARE_LIBRARY": str(library)})


@pytest.mark.promise("bad-input-21")
def test_without_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as musl, which knows no version of glibc."""

    def unknown(name: str) -> str:
        raise ValueError(name)

    for confstr in (unknown, lambda name: None):
        monkeypatch.setattr("os.confstr", confstr)
        said = why_not_here(HOOK_LIBRARY.read_bytes(), "/x.so")
        assert said.startswith("The C library here is not glibc, which /x.so needs. Use a")


@pytest.mark.promise("bad-input-21")
def test_what_only_a_trial_shows(image: Image, tmp_path: Path) -> None:
    """A library that ends the programs that it is in looks like any other."""
    source, library = tmp_path / "bad.c", tmp_path / "bad.so"
    source.write_text(
        "#include <unistd.h>\n__attribute__((constructor)) void f(void) { _exit(3); }"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    done = image(sys.executable, "-c", WITH_ANOTHER, library, "preload", "install")
    assert done.returncode == 2
    assert "does not work here as before: it ends with 3. Nothing was written to" in done.stderr
    assert not image.list.exists()


@pytest.mark.promise("jupyter-1")
@pytest.mark.parametrize("case", ["missing", "another processor"])
def test_named_by_hand(image: Image, hello: Callable[..., Path], tmp_path: Path, case: str) -> None:
    """A file that is gone, or of another processor: programs print a line, and work."""
    library = tmp_path / "libgpushare.so"
    if case == "another processor":
        library.write_bytes(other_processor(HOOK_LIBRARY.read_bytes()))
    image.name_by_hand(library)
    said = image(hello())
    assert (said.returncode, said.stdout) == (0, "hello\n")
    assert "cannot be preloaded" in said.stderr and "ignored" in said.stderr


@pytest.mark.promise("jupyter-1")
def test_a_process_has_the_hook_once(image: Image, tmp_path: Path) -> None:
    """Where it is named there, a kernel gets that one and no second one: two would wait for each
    other. The doctor looks at that one too."""
    assert image(*PRELOAD, "install").returncode == 0
    mounted = tmp_path / "mounted" / "libgpushare.so"
    mounted.parent.mkdir()
    shutil.copy(HOOK_LIBRARY, mounted)
    program = """
import json, os, subprocess, sys
from jupyter_gpushare.cli.checkup.library import library_facts
from jupyter_gpushare.kernel.environment import tenant_environment
from jupyter_gpushare.kernel.loadable import loadable_library
library = loadable_library(os.environ)
env = tenant_environment(os.environ, socket="/s", token="t", library=library)
show = "print(len({l.split()[-1] for l in open('/proc/self/maps') if 'libgpushare' in l}))"
maps = subprocess.check_output([sys.executable, "-c", show], env=env, text=True)
facts = library_facts(os.environ)
print(json.dumps([str(library), int(maps), facts.path, facts.api_version]))
"""
    done = image(sys.executable, "-c", program, GPUSHARE_LIBRARY=str(mounted))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [KEPT, 1, KEPT, 1]


def test_without_the_right_to_write(image: Image, tmp_path: Path) -> None:
    """One sentence on what is wrong, and one on what to do."""
    folder = image.layers["/usr/local/lib"] / "upper" / "jupyter-gpushare"
    folder.write_text("no folder")
    done = image(*PRELOAD, "install")
    assert done.returncode == 2
    assert "cannot be changed: File exists. Run this as root" in done.stderr


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/a.so\n/b.so:/c.so /d.so\n", ["/a.so", "/b.so", "/c.so", "/d.so"]),
        ("# /a.so\n/b.so # /c.so\n", ["/b.so"]),
        ("", []),
    ],
)
def test_how_the_list_is_read(tmp_path: Path, text: str, found: list[str]) -> None:
    """As the dynamic loader reads it."""
    file = tmp_path / "list"
    assert system_preloads(file) == []
    file.write_text(text)
    assert [str(each) for each in system_preloads(file)] == found


def test_a_file_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel's start is not the time for it; a new file is another one."""
    library = tmp_path / "libgpushare.so"
    shutil.copy(HOOK_LIBRARY, library)
    looks: list[Any] = []
    plain = loadable.why_not_here
    monkeypatch.setattr(loadable, "why_not_here", lambda *a: looks.append(a) or plain(*a))
    for _ in range(2):
        assert loadable_library({"GPUSHARE_LIBRARY": str(library)}) == library
    assert len(looks) == 1
    library.write_bytes(b"a text")
    with pytest.raises(LibraryMissing):
        loadable_library({"GPUSHARE_LIBRARY": str(library)})
