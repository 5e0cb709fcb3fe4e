"""The JSON schema of the chart's values: what is the chart's own, and what Kubernetes judges.

Every object that the chart reads is closed, so that a mistyped name is an error and not the default. What is passed on
as it is (affinity, a volume's source, a container's env) is the API server's to judge; it says so in its description.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]

PASSED_ON: Final = "passed on to Kubernetes, which judges it"

TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
PORT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 65535}
SECONDS: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 86400}
SIZE: Final[Schema] = {"type": "string", "pattern": "^([1-9][0-9]*([kMGT]|[KMGT]i)?)?$"}
SIZE_OR_NONE: Final[Schema] = {"type": "string", "pattern": "^(0|[1-9][0-9]*([kMGT]|[KMGT]i)?)?$"}
SECRET_KEY: Final[Schema] = {"type": "string", "pattern": "^[-._a-zA-Z0-9]{0,253}$"}
STRINGS: Final[Schema] = {"type": "object", "additionalProperties": TEXT}
QUANTITIES: Final[Schema] = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
# Host and port, or a URL; an @ would be a password in a ConfigMap.
# Its form is judged by helm/templates/_checks.tpl: an error of the schema would show a password in it.
ENDPOINT: Final[Schema] = {"type": "string", "minLength": 1}


def closed(**properties: Schema) -> Schema:
    """Return an object with these properties and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def array(items: Schema) -> Schema:
    """Return a list of these."""
    return {"type": "array", "items": items}


def one_of(*values: str) -> Schema:
    """Return one of these texts."""
    return {"enum": list(values)}


def or_none(schema: Schema) -> Schema:
    """Return this, or null, which stands for what the chart finds by itself."""
    return {"anyOf": [schema, {"type": "null"}]}


def at_least(least: int) -> Schema:
    """Return a whole number from this on."""
    return {"type": "integer", "minimum": least}


def passed_on(kind: str) -> Schema:
    """Return an object of a type of Kubernetes'."""
    return {"type": "object", "description": f"Kubernetes' {kind}, {PASSED_ON}"}


PLAIN_IMAGE = closed(repository=TEXT, tag=TEXT, digest=TEXT, pullPolicy=one_of("Always", "IfNotPresent", "Never"))
# `--set image.tag=1` gives a number.
IMAGE = closed(repository=TEXT, tag={"type": ["string", "integer"]})
RESOURCES = closed(limits=QUANTITIES, requests=QUANTITIES)
PROBE = closed(
    enabled=FLAG,
    httpGet=closed(
        path={"type": "string", "pattern": "^/"},
        port={"type": ["integer", "string"]},
        host=TEXT,
        scheme=one_of("HTTP", "HTTPS"),
        httpHeaders=array(closed(name=TEXT, value=TEXT)),
    ),
    tcpSocket=closed(port={"type": ["integer", "string"]}, host=TEXT),
    exec=closed(command=array(TEXT)),
    grpc=closed(port=PORT, service=TEXT),
    initialDelaySeconds=SECONDS,
    periodSeconds=at_least(1),
    timeoutSeconds=at_least(1),
    successThreshold=at_least(1),
    failureThreshold=at_least(1),
    terminationGracePeriodSeconds=SECONDS,
)
PROBES = closed(startup=PROBE, readiness=PROBE, liveness=PROBE)
ENV = array(passed_on("EnvVar"))
MOUNTS = array(passed_on("VolumeMount"))

SERVER = closed(
    image=IMAGE,
    application=TEXT,
    model=TEXT,
    command=array(TEXT),
    args=array(TEXT),
    extraArgs=array(TEXT),
    port=or_none(PORT),
    extraPorts=array(closed(name={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$"}, port=PORT)),
    processes=at_least(1),
    gpu=closed(count=or_none(at_least(0)), resource=TEXT),
    resources=RESOURCES,
    shm=closed(sizeLimit=SIZE_OR_NONE),
    tmp=closed(sizeLimit=SIZE),
    cache=closed(mountPath=TEXT, sizeLimit=SIZE, existingClaim=TEXT),
    preStopSleepSeconds=SECONDS,
    shutdownSeconds=or_none(SECONDS),
    readyOnBacklog=FLAG,
    probes=PROBES,
    env=ENV,
    envFrom=array(passed_on("EnvFromSource")),
    extraVolumeMounts=MOUNTS,
    lifecycle=passed_on("Lifecycle"),
)
LISTENER = closed(
    mode=one_of("sidecar", "inProcess", "node"),
    image=IMAGE,
    port=PORT,
    statusIntervalSeconds=SECONDS,
    resources=RESOURCES,
    env=ENV,
    extraVolumeMounts=MOUNTS,
)
STORAGE = closed(
    queue=closed(sizeLimit=SIZE),
    segments=closed(
        size={**SIZE, "minLength": 1},
        persistence=closed(
            enabled=FLAG,
            existingClaim=TEXT,
            storageClassName=TEXT,
            accessModes=array(one_of("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")),
            annotations=STRINGS,
        ),
    ),
)
NAME: Final[Schema] = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
HOST_PATH: Final[Schema] = {"type": "string", "pattern": "^/[^:{}*]*[^/:{}*]$"}
NODE = closed(
    namespaces={**array(NAME), "uniqueItems": True},
    claimName=NAME,
    queues=closed(hostPath=HOST_PATH),
    segments=closed(hostPath=HOST_PATH),
    forgetAfterSeconds=SECONDS,
    endedSize={**SIZE, "minLength": 1},
    inject=closed(enabled=FLAG),
    maxUnavailable={"type": ["integer", "string"]},
)
SHIPPER = closed(
    type=one_of("otel-collector", "fluent-bit", "vector", "inference-logging", "none"),
    image=closed(**IMAGE["properties"], program=TEXT),
    port=or_none(PORT),
    flushSeconds=SECONDS,
    resources=RESOURCES,
    env=ENV,
    extraVolumeMounts=MOUNTS,
)
DESTINATION = closed(
    type=one_of("otlp", "kafka", "loki", "elasticsearch", "clickhouse", "forward", "syslog"),
    endpoints=array(ENDPOINT),
    signal=one_of("logs", "traces", "both"),
    topic={"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,249}$"},
    index={"type": "string", "minLength": 1},
    database={"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$"},
    user={"type": "string", "pattern": "^[A-Za-z0-9._-]*$"},
    ttlDays={"type": "integer", "minimum": 0, "maximum": 9999},
    tag={"type": "string", "pattern": "^[a-zA-Z0-9._-]+$"},
    maxBytes=at_least(2048),
    tenant=TEXT,
    labels=STRINGS,
    mechanism=one_of("", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    tls=closed(
        enabled=FLAG,
        ca=closed(existingSecret=TEXT, key=SECRET_KEY),
        client=closed(existingSecret=TEXT, certKey=SECRET_KEY, keyKey=SECRET_KEY),
    ),
    existingSecret=TEXT,
    keys=closed(
        **dict.fromkeys(("username", "password", "token", "sharedKey", "kafkaProperties", "headers"), SECRET_KEY)
    ),
)
POD_SECURITY = closed(
    runAsNonRoot=FLAG,
    runAsUser=at_least(1),
    runAsGroup=at_least(0),
    fsGroup=at_least(0),
    fsGroupChangePolicy=one_of("OnRootMismatch", "Always"),
    supplementalGroups=array(at_least(0)),
    seccompProfile=closed(type=one_of("RuntimeDefault", "Localhost", "Unconfined"), localhostProfile=TEXT),
    seLinuxOptions=passed_on("SELinuxOptions"),
)
SECURITY = closed(
    allowPrivilegeEscalation=FLAG,
    readOnlyRootFilesystem=FLAG,
    privileged=FLAG,
    capabilities=closed(add=array(TEXT), drop=array(TEXT)),
    seccompProfile=closed(type=one_of("RuntimeDefault", "Localhost", "Unconfined"), localhostProfile=TEXT),
    seLinuxOptions=passed_on("SELinuxOptions"),
)
PEERS = array(passed_on("NetworkPolicyPeer"))
MONITOR = closed(
    kind=one_of("", "ServiceMonitor", "PodMonitor"),
    labels=STRINGS,
    interval={"type": "string", "pattern": "^[0-9]+(ms|s|m)$"},
    serverPath={"type": "string", "pattern": "^(/.*)?$"},
)
NETWORK_POLICY = closed(
    enabled=FLAG,
    **{"from": PEERS},
    metricsFrom=PEERS,
    egress=closed(enabled=FLAG, to=PEERS, extra=array(passed_on("NetworkPolicyEgressRule"))),
)
THRESHOLDS = closed(
    **{
        name: {"type": "number", "minimum": 0}
        for name in (
            "queueRatio",
            "consumerLagSeconds",
            "bytesPerSecond",
            "listenerCpuCores",
            "loggingCpuRatio",
            "nodeOtherCpuRatio",
            "dirtyMemoryRatio",
            "shipperLagSeconds",
            "routeFailureRatio",
        )
    }
)


def said(config: Schema) -> dict[str, Schema]:
    """Return what the chart says of parameters in words: Helm shows patterns, and `--set` makes texts of numbers.

    ``must``: what is allowed; ``number``: whether it is one with a point; ``switch``: whether it is on or off, which
    YAML reads as true and false; else ``text``: the pattern of its texts, and ``name``: that of its names.
    """
    found = {name: _patterns(one) for name, one in config["properties"].items() if name != "advanced"}
    return {
        name: {"must": config["properties"][name]["description"].rpartition(" Allowed: ")[2], **rules}
        for name, rules in found.items()
        if rules
    }


def _patterns(parameter: Schema) -> Schema:
    if _is_number(parameter):
        return {"number": True}
    if _is_switch(parameter):
        return {"switch": True}
    texts = [
        parameter,
        *parameter.get("anyOf", ()),
        parameter.get("items", {}),
        parameter.get("additionalProperties", {}),
    ]
    found = {"text": [one["pattern"] for one in texts if "pattern" in one]}
    found["name"] = [one["pattern"] for one in (parameter.get("propertyNames", {}),) if "pattern" in one]
    return {name: patterns[0] for name, patterns in found.items() if patterns}


def _is_number(parameter: Schema) -> bool:
    return any(one.get("type") == "number" for one in (parameter, *parameter.get("anyOf", ())))


def _is_switch(parameter: Schema) -> bool:
    """Whether it is on or off, and the package refuses true, which YAML reads for an unquoted on."""
    choices = parameter.get("enum", ())
    return "on" in choices and True not in choices


def _with_texts(config: Schema) -> Schema:
    """Return the schema with more allowed where the chart says in words what is: any text, and true for on."""
    return {**config, "properties": {name: _wider(one) for name, one in config["properties"].items()}}


def _wider(parameter: Schema) -> Schema:
    if _is_number(parameter):
        return {"description": parameter["description"], "anyOf": [parameter, TEXT]}
    if _is_switch(parameter):
        return {**parameter, "enum": [*parameter["enum"], True]}
    without: Schema = _without_patterns(parameter)
    return without


def _without_patterns(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_patterns(one) for one in schema]
    if isinstance(schema, dict):
        return {name: _without_patterns(one) for name, one in schema.items() if name != "pattern"}
    return schema


def values(config: Schema) -> Schema:
    """Return the schema of all values, where ``config`` is that of logging.yaml."""
    return closed(
        mode=one_of("server", "node"),
        preset=one_of("fastapi", "vllm", "triton", "custom"),
        nameOverride=TEXT,
        fullnameOverride=TEXT,
        replicaCount=at_least(0),
        image=IMAGE,
        imagePullPolicy=one_of("Always", "IfNotPresent", "Never"),
        imagePullSecrets=array(closed(name=TEXT)),
        server=SERVER,
        listener=LISTENER,
        config=_with_texts(config),
        storage=STORAGE,
        node=NODE,
        shipper=SHIPPER,
        destination=DESTINATION,
        terminationGracePeriodSeconds=or_none(SECONDS),
        podSecurityContext=POD_SECURITY,
        securityContext=SECURITY,
        serviceAccount=closed(create=FLAG, name=TEXT, annotations=STRINGS, automountToken=FLAG),
        service=closed(type=one_of("ClusterIP", "NodePort", "LoadBalancer"), port=PORT, annotations=STRINGS),
        podLabels=STRINGS,
        podAnnotations=STRINGS,
        nodeSelector=STRINGS,
        tolerations=array(passed_on("Toleration")),
        affinity=passed_on("Affinity"),
        podSpec=passed_on("PodSpec"),
        strategy=passed_on("DeploymentStrategy"),
        extraInitContainers=array(passed_on("Container")),
        extraVolumes=array(passed_on("Volume")),
        autoscaling=closed(
            enabled=FLAG,
            minReplicas=at_least(1),
            maxReplicas=at_least(1),
            targetCPUUtilizationPercentage=at_least(1),
            metrics=array(passed_on("MetricSpec")),
            behavior=passed_on("HorizontalPodAutoscalerBehavior"),
        ),
        podDisruptionBudget=closed(
            enabled=FLAG,
            minAvailable={"type": ["integer", "string", "null"]},
            maxUnavailable={"type": ["integer", "string", "null"]},
        ),
        networkPolicy=NETWORK_POLICY,
        monitor=MONITOR,
        alerts=closed(enabled=FLAG, labels=STRINGS, runbookUrl=TEXT, thresholds=THRESHOLDS),
        dashboard=closed(enabled=FLAG, recordingRules=FLAG, labels=STRINGS, annotations=STRINGS),
        **{"global": {"type": "object", "description": f"of a chart that this one is part of, {PASSED_ON}"}},
    )


_NO_VARIABLES: Final = ("version", "advanced")
"""Members of logging.yaml that are no parameters."""


def library(parameters: Mapping[str, Schema]) -> Schema:
    """Return the library chart's values; ``parameters``: those of logging.yaml, by name.

    Helm removes the default of a key without a value, which then is missed by its name.
    """
    made = closed(
        image=PLAIN_IMAGE,
        port=PORT,
        statusIntervalSeconds=SECONDS,
        resources=RESOURCES,
        securityContext={
            **SECURITY,
            "properties": {
                **SECURITY["properties"],
                "runAsNonRoot": FLAG,
                "runAsUser": at_least(0),
                "runAsGroup": at_least(0),
            },
        },
        queue=closed(sizeLimit={**SIZE, "minLength": 1}),
        segments=closed(size={**SIZE, "minLength": 1}),
        config={
            **closed(
                **{name: _variable(parameter) for name, parameter in parameters.items() if name not in _NO_VARIABLES}
            ),
            "description": "parameters of logging.yaml as variables, whose values the package judges",
        },
    )
    required = list(made["properties"])
    made["properties"]["global"] = {"type": "object", "description": f"of the chart that uses this one, {PASSED_ON}"}
    return made | {"required": required}


def _variable(parameter: Schema) -> Schema:
    """Return what a parameter may be as a variable: a text or number; a list; true and false where it takes them.

    YAML reads `on` and `off` as true and false, and a variable would say "true" then.
    """
    flag = ["boolean"] if any(value is True for value in parameter.get("enum", ())) else []
    return {"type": ["string", "number", *flag, "array", "null"]}
