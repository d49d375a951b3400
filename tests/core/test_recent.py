"""Recent use of one tenant: how it fades, what survives, and when one has had less than another."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.accounts import Recent, RecentUses, has_less_after_s
from jupyter_gpushare.core.ids import DeviceId, TenantId

A = DeviceId("A")
ONE, TWO = TenantId("one"), TenantId("two")
LN2 = math.log(2)


def uses(**used_s: float) -> RecentUses:
    """So much each, a moment before the time 0."""
    made = RecentUses()
    for name, seconds in used_s.items():
        made.comes(TenantId(name), "ann")
        made.of[TenantId(name)].recent[A] = Recent(seconds)
    return made


def test_use_fades_by_half() -> None:
    recent = uses(one=8.0)
    assert recent.left_s(ONE, {A}, 60.0) == 2.0
    assert recent.left_s(ONE, (), 60.0) == 0.0


def test_use_without_a_break_comes_near_its_ceiling() -> None:
    """However the time is divided in which it is charged."""
    at_once, in_parts = uses(one=0.0), uses(one=0.0)
    at_once.use(ONE, A, 600.0, 0.0, 600.0)
    for second in range(600):
        in_parts.use(ONE, A, 1.0, second, second + 1)
    assert at_once.left_s(ONE, {A}, 600.0) == pytest.approx(30 / LN2, rel=1e-3)
    assert in_parts.key(ONE, {A}) == at_once.key(ONE, {A})


@given(st.floats(0, 50), st.floats(0, 50), st.floats(0, 3600))
def test_who_waits_keeps_its_order(one_s: float, two_s: float, later_s: float) -> None:
    """Without a look at either: keys do not change while use only fades."""
    recent = uses(one=one_s, two=two_s)
    one, two = recent.left_s(ONE, {A}, later_s), recent.left_s(TWO, {A}, later_s)
    if recent.key(ONE, {A}) < recent.key(TWO, {A}):
        assert one <= two
    if recent.key(ONE, {A}) == recent.key(TWO, {A}):
        assert one == pytest.approx(two, rel=1e-5)


def test_nothing_fades_on_a_paused_device() -> None:
    recent = uses(one=8.0)
    recent.pause(A, True, 30.0)
    recent.pause(A, True, 60.0)
    assert recent.left_s(ONE, {A}, 90.0) == 4.0
    recent.pause(A, False, 90.0)
    assert recent.left_s(ONE, {A}, 90.0) == 4.0
    assert recent.left_s(ONE, {A}, 120.0) == 2.0


def test_another_half_life_counts_from_now_on() -> None:
    recent = uses(one=8.0)
    recent.fade_in(10.0, 30.0)
    assert recent.left_s(ONE, {A}, 30.0) == 4.0
    assert recent.left_s(ONE, {A}, 40.0) == 2.0


def test_what_has_ended_goes_to_the_first_new_one_once() -> None:
    """All of it, faded."""
    recent = uses(one=8.0, two=4.0)
    recent.ends(ONE, "ann", 30.0)
    recent.ends(TWO, "ann", 60.0)
    for number, left_s in ((1, 3.0), (2, 0.0)):
        new = TenantId(f"new {number}")
        recent.comes(new, "ann")
        assert recent.left_s(new, {A}, 60.0) == 0.0, "it has not asked for the device"
        recent.asks(new, [A])
        assert recent.left_s(new, {A}, 60.0) == left_s


def test_a_tenant_that_registers_again_keeps_its_own() -> None:
    recent = uses(one=8.0)
    recent.ends(TWO, "ann", 0.0)
    recent.comes(ONE, "ann")
    assert recent.left_s(ONE, {A}, 0.0) == 8.0


def test_what_has_faded_is_forgotten() -> None:
    recent = uses(one=8.0, two=8.0)
    recent.ends(ONE, "ann", 0.0)
    recent.ends(TWO, "ben", 3600.0)
    assert not recent.of_ended
    recent.remember("ann", {(ONE, A): 1.0}, 3600.0)
    recent.forget([], 3601.0)
    assert list(recent.of) == [ONE]
    recent.forget([], 7200.0)
    assert not recent.of


def test_it_survives_a_scheduler() -> None:
    """As it was, also of tenants that have ended."""
    before = uses(one=8.0, two=4.0)
    before.ends(TWO, "ann", 0.0)
    told = before.to_remember(30.0)
    after = RecentUses()
    after.remember("ann", told["ann"], 1000.0)
    assert after.to_remember(1000.0) == told, "nobody is back, and a third one comes"
    for name in (ONE, TenantId("new")):
        after.comes(name, "ann")
        after.asks(name, [A])
    assert after.left_s(ONE, {A}, 1000.0) == 4.0
    assert after.left_s(TenantId("new"), {A}, 1000.0) == 2.0


def test_own_credit_fills_up_and_is_spent() -> None:
    recent = uses(one=0.0)
    assert filled(recent, 0.0) == 2.0
    recent.spend(ONE, 1.5, 10.0, 2.0)
    assert filled(recent, 11.0) == 1.0
    assert filled(recent, 99.0) == 2.0


def filled(recent: RecentUses, now_s: float) -> float:
    """The tenant's own credit of 2 s at this time, which fills up at half of time."""
    recent.fill_credit(ONE, 0.5, 2.0, now_s)
    return recent.of[ONE].credit_s


@given(st.floats(0, 43), st.floats(0, 43), st.floats(0.5, 60))
def test_who_waits_has_less_exactly_then(has_s: float, waits_s: float, half_s: float) -> None:
    """Below by a second (a part of the half-life where that is short) and by a tenth."""
    has_s, waits_s = min(has_s, half_s), min(waits_s, half_s)

    def has_less(after_s: float) -> bool:
        left = 2 ** (-after_s / half_s)
        has = has_s * left + half_s / LN2 * (1 - left)
        apart = has - waits_s * left
        return apart >= min(1.0, half_s / 4) - 1e-9 and apart >= 0.1 * has - 1e-9

    after_s = has_less_after_s(has_s, waits_s, half_s)
    assert after_s >= 0 and has_less(after_s)
    assert after_s == 0 or not has_less(after_s * 0.99 - 1e-3)
