"""The resource of records: which service wrote them, in which pod, on which machine."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from inference_logging.record.config.fields import Parameters, each_name_once, matching, parameter, split_expressions

MOST_ATTRIBUTES = 64
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_VALUE = re.compile(r"[^\x00-\x1f\x7f]{1,512}")

Attributes = Annotated[
    tuple[tuple[Annotated[str, matching(_NAME)], Annotated[str, matching(_VALUE)]], ...],
    BeforeValidator(split_expressions, json_schema_input_type=dict[str, str]),
    AfterValidator(each_name_once),
    PlainSerializer(dict, return_type=dict[str, str]),
]


class ResourceParameters(Parameters):
    """The resource of records: which service wrote them, in which pod, on which machine."""

    resource: Attributes = parameter(
        (),
        "OpenTelemetry resource attributes, such as service.version or deployment.environment.name, in each segment's "
        "header. In a variable: one name=value per line. They override OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, "
        "which override what is detected: host.name, container.id and service.instance.id. service.name is "
        "service_name unless that is the default.",
        allowed=f"at most {MOST_ATTRIBUTES} names of 1 to 128 letters, digits, '.', '_' or '-', and texts of 1 to 512 "
        "characters without control characters",
    )
    resource_on_lines: Literal["off", "on"] = parameter(
        "off",
        "on: each line ends with the resource, for sinks without segments and for readers of single lines. The "
        "listener adds it, at no cost to requests.",
        advanced=True,
    )
