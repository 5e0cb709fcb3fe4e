"""An OpenTelemetry Collector of the components that a file names, by the project's own builder."""

from __future__ import annotations

from tools.programs.workshop import BIN, GO, HERE, SCRATCH, Pin, go, run


def build(name: str, pin: Pin) -> None:
    """Install the builder of that version, and let it build the collector; its file says where, seen from SCRATCH."""
    programs = SCRATCH / f"builder-{pin['version']}"
    go("install", "-trimpath", f"go.opentelemetry.io/collector/cmd/builder@{pin['version']}", programs=programs)
    run(programs / "builder", f"--config={HERE / pin['file']}", cwd=SCRATCH, environment=GO)
    (SCRATCH / name / name).replace(BIN / name)
