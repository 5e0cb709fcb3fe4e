"""The life of a release on a real API server, with each preset: upgraded, rolled back and removed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from tests.cluster.release import Release, situations, values_of
from tests.support import wait_until

pytestmark = pytest.mark.cluster


def fullest() -> list[str]:
    """Name for each preset the situation whose values say most."""
    by_size = sorted(situations(), key=lambda situation: values_of(situation).stat().st_size)
    return sorted({situation.partition("-")[0]: situation for situation in by_size}.values())


with_each_preset = pytest.mark.parametrize("situation", fullest())


@with_each_preset
def test_a_changed_configuration_rolls_the_pods_and_a_rollback_brings_back_the_old_one(
    release: Callable[[str], Release], situation: str
) -> None:
    installed = release(situation)
    installed.install()
    configured, first = installed.logging_yaml(), installed.revisions()
    assert configured["service_name"] != "renamed"
    installed.upgrade("--set=config.service_name=renamed")
    assert installed.logging_yaml() == {**configured, "service_name": "renamed"}
    wait_until(lambda: installed.revisions().isdisjoint(first), "new pods in place of the old ones")
    installed.rollback()
    assert installed.logging_yaml() == configured
    wait_until(lambda: installed.revisions() == first, "pods as there were at first")
    assert installed.manifest() == installed.manifest("--revision=1")


@with_each_preset
def test_an_upgrade_that_changes_nothing_leaves_the_pods(release: Callable[[str], Release], situation: str) -> None:
    installed = release(situation)
    installed.install()
    before = {pod["metadata"]["uid"] for pod in installed.pods()}
    installed.upgrade()
    assert {pod["metadata"]["uid"] for pod in installed.pods()} >= before
    assert len(installed.revisions()) == 1


@with_each_preset
def test_uninstalled_it_leaves_nothing_but_segments_on_a_volume(
    release: Callable[[str], Release], situation: str
) -> None:
    installed = release(situation)
    before = installed.objects()
    installed.install()
    made = installed.objects() - before
    kept = {
        f"{installed.namespace}/{each['kind']}/{each['metadata']['name']}"
        for each in installed.manifest()
        if each["kind"] == "PersistentVolumeClaim"
    }
    assert len(made) >= len(installed.manifest())
    installed.uninstall()
    with contextlib.suppress(AssertionError):
        wait_until(lambda: installed.objects() - before == kept, "all that the release was to be gone")
    assert installed.objects() - before == kept
