"""The types of configuration fields: how a value is written and converted to the schema's form."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer


class Parameters(BaseModel):
    """Parameters of one topic; only `Config`, which has all of them, is ever made, so only that one is built."""

    model_config = ConfigDict(defer_build=True)


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

MIN_RATIO: Final = 2.0**-56
"""The smallest ratio above 0 that a threshold of OpenTelemetry's sampling can express."""

GROUP: Final = "advanced"
"""The key under which keywords and the file may have the parameters that are declared as advanced."""

SIZE_UNITS = {"": 1, "KI": KIB, "MI": MIB, "GI": GIB, "K": 10**3, "M": 10**6, "G": 10**9}
_BYTES = re.compile(r"\s*(\d{1,20})\s*([KMG]I?)?B?\s*", re.ASCII | re.IGNORECASE)

_PATH_TEXT = r"[^\x00-\x20\x7f{}*?#,/]"
_PATH_PATTERN = re.compile(rf"(?:/(?:{_PATH_TEXT}*|\{{{_PATH_TEXT}+\}}))+(?:/\*)?|/\*")
_NETWORK = re.compile(r"\*|[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?:/[0-9]{1,2})?|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:/[0-9]{1,3})?")


def parse_bytes(value: Any) -> Any:
    """Turn ``"16MiB"``, ``"16Mi"``, ``"16 MB"`` or ``"16777216"`` into a number of bytes; pass on other types.

    Raises ``ValueError`` for a string of another form.
    """
    if not isinstance(value, str):
        return value
    match = _BYTES.fullmatch(value)
    if match is None:
        raise ValueError("not a size")
    return int(match[1]) * SIZE_UNITS[(match[2] or "").upper()]


def _round_up_to_power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()


def _expand(value: Path | None) -> Path | None:
    if value is None:
        return None
    str(value).encode()  # a name that is not text cannot be passed to the core: UnicodeEncodeError is a ValueError
    return value.expanduser()


def none_if_empty(value: Any) -> Any:
    """Turn an empty string into None: an environment variable has no other form for it."""
    return None if value == "" else value


def upper(value: Any) -> Any:
    """Accept a name in any case."""
    return value.upper() if isinstance(value, str) else value


class Matches:
    """The check that a string, if there is one, is all of a pattern; the JSON schema reads the pattern from here."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        """Keep ``pattern``: the syntax that Python, JavaScript and RE2 share, ASCII classes only."""
        self.pattern = pattern

    def __call__(self, value: str | None) -> str | None:
        """Return ``value``; raises ``ValueError`` if it does not match."""
        if value is not None and not self.pattern.fullmatch(value):
            raise ValueError(f"must match {self.pattern.pattern}")
        return value


def matching(pattern: re.Pattern[str]) -> AfterValidator:
    """Return the check that a string, if there is one, is all of ``pattern``."""
    return AfterValidator(Matches(pattern))


class FewAndDifferent:
    """The check that a list is short and has nothing twice; the JSON schema reads the limit from here."""

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, value: tuple[str, ...]) -> tuple[str, ...]:
        """Return ``value``; raises ``ValueError`` if it is too long or has something twice."""
        if len(value) > self.most or len(set(value)) < len(value):
            raise ValueError("too many, or one twice")
        return value


def possible_ratio(value: float) -> float:
    """Check that a sampling ratio has a threshold; raises ``ValueError`` otherwise."""
    if value != 0 and not MIN_RATIO <= value <= 1:
        raise ValueError("must be 0, or from 2**-56 to 1")
    return value


def from_json(value: Any, kind: type[list[Any]] | type[dict[str, Any]]) -> Any:
    """Return the value of a text that is JSON of a ``kind``; anything else as it is.

    A text that only begins like JSON is left to the other way of writing several values in one text.
    """
    if type(value) is str and value.lstrip()[:1] == ("[" if kind is list else "{"):
        try:
            found = json.loads(value)
        except ValueError:
            return value
        # A path of a field can look like a list of numbers.
        is_meant = isinstance(found, kind) and all(isinstance(item, str) for item in found)
        return found if is_meant else value
    return value


def split_list(value: Any) -> Any:
    """Turn ``"a, b"`` or a list in JSON into a list, an empty string into an empty one; pass on anything else."""
    value = from_json(value, list)
    if type(value) is not str:
        return value
    return [part.strip() for part in value.split(",")] if value.strip() else []


def split_ratios(value: Any) -> Any:
    """Turn a mapping, also in JSON, or ``"/v1/*=0.1, /a=1"``, into pairs in the same order; pass on anything else.

    Raises ``ValueError`` for a mapping to something else than numbers.
    """
    value = from_json(value, dict)
    if isinstance(value, Mapping):
        if any(type(ratio) not in (int, float) for ratio in value.values()):
            raise ValueError("a ratio is a number")
        return tuple(value.items())
    if type(value) is str:
        return tuple(tuple(part.strip() for part in pair.rpartition("=")[::2]) for pair in split_list(value))
    return value


def split_expressions(value: Any) -> Any:
    """Turn a mapping, also in JSON, or lines of ``name=expression``, into pairs in the same order.

    An expression can hold commas and equals signs, so a line ends at its end and a name at the first sign. Anything
    else is passed on.
    """
    value = from_json(value, dict)
    if isinstance(value, Mapping):
        return tuple(value.items())
    if type(value) is str:
        return tuple(tuple(line.strip().partition("=")[::2]) for line in value.splitlines() if line.strip())
    return value


def first_of_each(pairs: tuple[tuple[str, float], ...]) -> dict[str, float]:
    """Return pairs as a mapping; if a name is there twice, the first value counts."""
    return {**dict(pairs), **dict(reversed(pairs))}


def each_name_once(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return ``pairs``; raises ``ValueError`` if a name is there twice: a mapping would keep only one of its values."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is given twice")
    return pairs


def network(value: str) -> str:
    """Check that a text is ``*``, an address or a network; raises ``ValueError`` otherwise."""
    if value != "*":
        ipaddress.ip_network(value)
    return value


Bytes = Annotated[int, BeforeValidator(parse_bytes, json_schema_input_type=int | str)]
RingBytes = Annotated[Bytes, AfterValidator(_round_up_to_power_of_two)]
Directory = Annotated[Path, AfterValidator(_expand)]
OptionalPath = Annotated[Path | None, BeforeValidator(none_if_empty), AfterValidator(_expand)]
Ratio = Annotated[float, AfterValidator(possible_ratio)]
PathPattern = Annotated[str, matching(_PATH_PATTERN)]
PathPatterns = Annotated[tuple[PathPattern, ...], BeforeValidator(split_list)]
Networks = Annotated[
    tuple[Annotated[str, matching(_NETWORK), AfterValidator(network)], ...], BeforeValidator(split_list)
]
RouteRatios = Annotated[
    tuple[tuple[PathPattern, Ratio], ...],
    BeforeValidator(split_ratios, json_schema_input_type=dict[str, float]),
    PlainSerializer(first_of_each, return_type=dict[str, float]),
]


def parameter(
    default: Any,
    meaning: str,
    *,
    unit: str = "",
    limits: tuple[float, float] | None = None,
    allowed: str = "",
    advanced: bool = False,
) -> Any:
    """Declare a field: meaning (with what happens at the limit), unit, inclusive limits or allowed values in words.

    ``advanced`` puts it into the group of this name: parameters whose default suits nearly every server.
    """
    low, high = limits or (None, None)
    extra: dict[str, Any] = {"unit": unit, "allowed": allowed, "advanced": advanced}
    return Field(default, description=meaning, ge=low, le=high, json_schema_extra=extra)
