"""The YAML of a configuration file: bounded in size, however its aliases multiply it, and each name given once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

MOST: Final = 1 << 20
"""Bytes of a file, and letters of its values, where an alias counts as much as what it names."""


def read(path: Path) -> Any:
    """Return the document in a file. Raises OSError, and ``ValueError`` and ``YAMLError`` for one that is refused."""
    with path.open("rb") as file:
        content = file.read(MOST + 1)
    if len(content) > MOST:
        raise ValueError(f"it has more than {MOST:,} bytes")
    loader = yaml.SafeLoader(content)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _letters(node, {})
        return loader.construct_document(node)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    finally:
        loader.dispose()


def _letters(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many letters a node has with all that is in it. Raises ``ValueError`` for what is refused."""
    if id(node) in known:
        if not known[id(node)]:
            raise ValueError(f"line {node.start_mark.line + 1}: it contains itself")
        return known[id(node)]
    known[id(node)] = 0
    letters = 1
    if isinstance(node, yaml.ScalarNode):
        letters += len(node.value)
    elif isinstance(node, yaml.SequenceNode):
        letters += sum(_letters(item, known) for item in node.value)
    else:
        names = set()
        for name, value in node.value:
            letters += _letters(name, known) + _letters(value, known)
            if isinstance(name, yaml.ScalarNode) and (name.tag, name.value) in names:
                raise ValueError(f"line {name.start_mark.line + 1}: {name.value[:100]!r} is given twice")
            names.add((name.tag, str(name.value)))
    if letters > MOST:
        raise ValueError(f"line {node.start_mark.line + 1}: its values have more than {MOST:,} letters")
    known[id(node)] = letters
    return letters
