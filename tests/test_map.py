"""The drawing of the core in ``native/README.md`` is that of its sources, and no arrow in it points upward."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

NATIVE = Path(__file__).parent.parent / "native"


@pytest.fixture(name="native_map")
def load() -> ModuleType:
    """Return `native/map.py` as a module."""
    spec = importlib.util.spec_from_file_location("native_map", NATIVE / "map.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_drawing_is_that_of_the_sources(native_map: ModuleType) -> None:
    assert native_map.drawn() == (NATIVE / "README.md").read_text(), "run `make map`"


def test_what_points_upward_or_goes_in_a_circle_is_named(
    native_map: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "queue": {"one": "use crate::two::X;", "two": "use crate::{one::Y, three};", "three": "use lines::encode;"},
        "lines": {"encode": "use queue::one;"},
    }
    monkeypatch.setattr(native_map, "sources", lambda crate: files.get(crate, {}))
    _, wrong = native_map.draw()
    assert wrong[0] == "queue imports lines"
    assert sorted(wrong[1].removeprefix("queue: a circle: ").split(" → ")[:2]) == ["one", "two"]
    with pytest.raises(SystemExit, match="queue imports lines"):
        native_map.drawn()
