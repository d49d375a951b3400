"""Lists of devices in the manner of CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import pytest

from jupyter_gpushare.scheduler.base.errors import StartError
from jupyter_gpushare.scheduler.devices.visible import DeviceName, asked_for, visible

WHOLE = DeviceName(0, "GPU-aaaa-1", "GPU-aaaa-1")
OTHER = DeviceName(2, "GPU-aabb-2", "GPU-aabb-2")
LEFT = DeviceName(1, "MIG-cccc-3", "GPU-cccc-0")
RIGHT = DeviceName(1, "MIG-dddd-4", "GPU-cccc-0")
ALL = [WHOLE, LEFT, RIGHT, OTHER]


def chosen(text: str | None) -> list[DeviceName]:
    served = visible(ALL, text)
    return [device for device in ALL if served.includes(device)]


@pytest.mark.promise("scheduler-72")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ALL),
        ("", []),
        ("0", [WHOLE]),
        ("2,0", [WHOLE, OTHER]),
        ("0, 2", [WHOLE, OTHER]),
        ("1", [LEFT, RIGHT]),
        ("GPU-aaaa-1", [WHOLE]),
        ("GPU-aab", [OTHER]),
        ("gpu-aaaa-1", []),
        ("GPU-AAAA", [WHOLE]),
        ("GPU-aa", []),
        ("GPU-cccc", [LEFT, RIGHT]),
        ("MIG-cccc-3", [LEFT]),
        ("MIG-d", [RIGHT]),
        ("0,-1,2", [WHOLE]),
        ("0,7,2", [WHOLE]),
        ("NoDevFiles", []),
        ("all", []),
    ],
)
def test_the_list_means_what_it_means_to_cuda(text: str | None, expected: list[DeviceName]) -> None:
    """Indices, UUIDs and their unambiguous beginnings; the first bad entry ends the list."""
    assert chosen(text) == expected


def test_a_device_that_appears_later_is_served_if_all_are() -> None:
    """Without a list whatever appears is ours; with one, new instances of a chosen GPU are."""
    new = DeviceName(1, "MIG-eeee-5", "GPU-cccc-0")
    assert visible(ALL, None).includes(new)
    assert visible(ALL, "1").includes(new)
    assert not visible(ALL, "MIG-cccc-3").includes(new)
    assert not visible(ALL, "0").includes(new)


def test_what_is_asked_for_by_name_must_be_there() -> None:
    """A wrong entry of --devices is a mistake, and the message lists what there is."""
    assert asked_for(ALL, "GPU-aaaa-1,1").includes(RIGHT)
    with pytest.raises(StartError, match=r"No device is called 'GPU-x'.*MIG-cccc-3"):
        asked_for(ALL, "0,GPU-x")
