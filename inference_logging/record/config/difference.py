"""What differs between two configuration files, in words: values, meanings, and what the change implies."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from inference_logging._native import configuration_differences, configuration_fingerprint
from inference_logging.record.config.config import Config, FileConfig, Parameter
from inference_logging.record.config.reference import in_table
from inference_logging.record.settings import settings

_WIDTH: Final = 100
_BY_CTL: Final = {
    "chunks": "chunks", "enabled": "disable", "level": "level", "sample_ratio": "sample-ratio",
}  # fmt: skip
"""Parameters that `inference-logging ctl` changes for a while, and its command."""
_RESTART: Final = "The change takes effect when servers, and a listener beside them, start again."


class Value(NamedTuple):
    """A value as the file has it, in JSON's types; ``is_default`` if the file has none."""

    value: Any
    is_default: bool

    def __str__(self) -> str:
        """Return the value in the form of the file, and whether it is the default."""
        shown = self.value if isinstance(self.value, str) and self.value else json.dumps(self.value, ensure_ascii=False)
        return f"{shown} (default)" if self.is_default else str(shown)


class Change(NamedTuple):
    """A parameter whose value differs."""

    parameter: Parameter
    old: Value
    new: Value

    @property
    def trial(self) -> str | None:
        """Say how it can be tried without a restart, if it can."""
        command = _BY_CTL.get(self.parameter.name)
        return f"`inference-logging ctl {command}` tries it for a while without a restart." if command else None


class Difference(NamedTuple):
    """The difference of two files."""

    old: Path
    new: Path
    changes: Sequence[Change]
    owned: Sequence[str]
    """What differs of the part of the configuration to which a queue directory belongs."""
    fingerprints: tuple[str, str]
    queue_directories: tuple[Path, Path]

    @classmethod
    def between(cls, old: Path, new: Path) -> Difference:
        """Compare two files, each by itself: the environment is not read, defaults are filled in.

        Raises ``ConfigError`` for a file that cannot be used.
        """
        before, after = FileConfig(config_file=old), FileConfig(config_file=new)
        origins = FileConfig.origins(config_file=old), FileConfig.origins(config_file=new)
        values = before.model_dump(mode="json"), after.model_dump(mode="json")
        changes = [
            Change(
                parameter,
                *(Value(one[parameter.name], of[parameter.name] == "default")
                  for one, of in zip(values, origins, strict=True)),
            )
            for parameter in Config.describe()
            if parameter.name != "config_file" and values[0][parameter.name] != values[1][parameter.name]
        ]  # fmt: skip
        texts = settings(before).configuration, settings(after).configuration
        owned = [sentence.partition(" ")[0] for sentence in configuration_differences(*texts)]
        fingerprints = configuration_fingerprint(texts[0]), configuration_fingerprint(texts[1])
        queues = before.resolved_queue_directory, after.resolved_queue_directory
        return cls(old, new, changes, owned, fingerprints, queues)

    def words(self) -> str:
        """Return the difference as text: a paragraph for each parameter, then what it implies."""
        return "\n".join(self._words())

    def _words(self) -> Iterator[str]:
        yield self._summary()
        for change in self.changes:
            unit = f" ({change.parameter.unit})" if change.parameter.unit else ""
            yield f"\n{change.parameter.name}: {change.old} → {change.new}{unit}"
            for sentence in filter(None, (change.parameter.meaning, change.trial)):
                yield textwrap.fill(sentence, _WIDTH, initial_indent="    ", subsequent_indent="    ")
        if self.changes:
            yield ""
            yield from (textwrap.fill(sentence, _WIDTH, break_on_hyphens=False) for sentence in self.implications())

    def markdown(self) -> str:
        """Return the difference as Markdown: a table of the parameters, then what it implies."""
        lines = [f"{self._summary()}."]
        if self.changes:
            lines += ["", "| parameter | old | new | unit | meaning |", "|---|---|---|---|---|"]
            lines += [f"| {' | '.join(_cells(change))} |" for change in self.changes]
            lines += ["", *(f"* {sentence}" for sentence in self.implications())]
        return "\n".join(lines) + "\n"

    def as_json(self) -> dict[str, Any]:
        """Return the difference for ``--json``."""
        return {
            "old": str(self.old),
            "new": str(self.new),
            "parameters": {
                change.parameter.name: {
                    "old": change.old.value,
                    "new": change.new.value,
                    "old_is_default": change.old.is_default,
                    "new_is_default": change.new.is_default,
                    "unit": change.parameter.unit,
                    "meaning": change.parameter.meaning,
                }
                for change in self.changes
            },
            "shares_queue_directory": self.shares_queue_directory,
            "queue_directories": [str(path) for path in self.queue_directories],
            "fingerprints": list(self.fingerprints),
            "implications": self.implications(),
        }

    @property
    def shares_queue_directory(self) -> bool:
        """Whether processes with the one file and with the other have one queue directory, and one listener."""
        return not self.owned and self.queue_directories[0] == self.queue_directories[1]

    def implications(self) -> list[str]:
        """Return what the change implies, in sentences."""
        return [_RESTART, self._of_queues()] if self.changes else []

    def _summary(self) -> str:
        count = len(self.changes)
        differs = "no parameter differs" if count == 0 else "1 parameter differs" if count == 1 else ""
        return f"{self.old} → {self.new}: {differs or f'{count} parameters differ'}"

    def _of_queues(self) -> str:
        old, new = self.queue_directories
        names = ", ".join(f"`{name}`" for name in self.owned)
        if self.shares_queue_directory:
            return "Processes with either file share a queue directory, and with it one listener."
        if not self.owned:
            return f"Queues move from {old} to {new}: start a listener beside the servers there too."
        if old == new:
            return (
                f"A server with one file does not start while one with the other runs: the queue directory {old} "
                f"belongs to one configuration, and {names} would differ. Queues of killed processes are "
                "moved aside, and stderr names the command that writes their records."
            )
        return (
            "Processes with the old and the new file have different queue directories, each with a listener, since "
            f"{names} would differ: the fingerprint is {self.fingerprints[0]} with the old file and "
            f"{self.fingerprints[1]} with the new one. `inference-logging recover` with the old file writes what "
            "killed processes of the old one left."
        )


def _cells(change: Change) -> list[str]:
    meaning = " ".join(filter(None, (change.parameter.meaning, change.trial)))
    values = (f"`{value.value if isinstance(value.value, str) and value.value else json.dumps(value.value)}`"
              f"{' (default)' if value.is_default else ''}" for value in (change.old, change.new))  # fmt: skip
    return [
        f"`{change.parameter.name}`",
        *(in_table(value) for value in values),
        change.parameter.unit,
        in_table(meaning),
    ]
