"""What the parts beside the request path take, with the goal beside each figure: ``make bench``.

    python -m loadtests.cost.bench [SECTION ...] [--quick | --keep] [--json PATH]

The listener, its process, `verify` and the audit lane; each section's module says how it measures and why. The load
average is printed because it must be read with the figures: what others run at the same time takes the listener's core
first. The exit status says whether the measurement went through, not whether the goals were reached.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from loadtests import harness
from loadtests.cost.bench_audit import audit
from loadtests.cost.bench_listener import listener
from loadtests.cost.bench_report import Report
from loadtests.cost.bench_sidecar import sidecar
from loadtests.cost.bench_verify import verify
from loadtests.results import keep

SECTIONS: dict[str, Callable[[bool], Report]] = {
    "listener": listener,
    "sidecar": sidecar,
    "verify": verify,
    "audit": audit,
}


def main() -> None:
    """Run the sections that were asked for, print each as soon as it is done."""
    options = _options()
    names = SECTIONS if "all" in options.sections else dict.fromkeys(options.sections)

    def measure() -> dict[str, Any]:
        reports: dict[str, Report] = {}
        for name in names:
            reports[name] = SECTIONS[name](options.quick)
            reports[name].print()
        print(f"\n{_summary(list(reports.values()))}", flush=True)
        return {"sections": {name: report.as_json() for name, report in reports.items()}}

    found = harness.measured(options, "make bench", "median (lowest … highest round)", measure)
    if options.keep:
        print(f"kept in {keep('bench', found)}")


def _options() -> argparse.Namespace:
    parser = harness.parser(__doc__, keeps=True)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, "all"], default="all", metavar="SECTION")
    options = parser.parse_args()
    if options.keep and "all" not in options.sections:
        parser.error(f"--keep with {' '.join(options.sections)}: only the result of all sections is kept")
    return options


def _summary(reports: list[Report]) -> str:
    reached = [figure.goal.is_reached(figure.found.value) for one in reports for figure in one.figures if figure.goal]
    return f"{sum(reached)} of {len(reached)} goals reached"


if __name__ == "__main__":
    main()
