"""A pod: which containers in which order, what they share, what they may do, how they are probed and how they end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config
from tests.chart.chart import CHART, MODES, PRESETS, parted, render

pytestmark = pytest.mark.chart

MIB = 1 << 20
QUEUE = "/run/inference-logging"
SEGMENTS = "/var/log/inference-logging"
SHARING = ("server", "listener", "shipper")


def mount(container: dict[str, Any], volume: str) -> dict[str, Any]:
    (found,) = [one for one in container["volumeMounts"] if one["name"] == volume]
    assert isinstance(found, dict)
    return found


# Order


def test_sidecars_start_before_the_server_and_so_end_after_it_listener_first_and_shipper_last() -> None:
    pod = render().pod
    assert [container["name"] for container in pod["initContainers"]] == ["install", "shipper", "listener"]
    # Restarted always: a sidecar, which is asked to end when the containers have ended, in the opposite order.
    assert [container.get("restartPolicy") for container in pod["initContainers"]] == [None, "Always", "Always"]
    assert [container["name"] for container in pod["containers"]] == ["server"]


def test_the_server_starts_when_the_listener_is_there() -> None:
    probe = render().containers["listener"]["startupProbe"]
    assert probe["httpGet"] == {"path": "/live", "port": "metrics"}


def test_init_containers_of_ones_own_come_before_the_sidecars() -> None:
    release = render(extraInitContainers=[{"name": "download", "image": "download:1"}])
    assert list(release.containers) == ["download", "install", "shipper", "listener", "server"]


@pytest.mark.parametrize("tag", ["", "v1.2"])
def test_server_and_listener_know_pod_namespace_node_and_the_servers_version(tag: str) -> None:
    release = render(server={"image": {"tag": tag}})
    fields = {
        "POD_NAME": "metadata.name",
        "POD_UID": "metadata.uid",
        "POD_NAMESPACE": "metadata.namespace",
        "NODE_NAME": "spec.nodeName",
    }
    for name in ("server", "listener"):
        environment = release.environment(name)
        order = list(environment)
        pairs = dict(pair.split("=") for pair in environment["OTEL_RESOURCE_ATTRIBUTES"].split(","))
        assert pairs == {
            "k8s.pod.name": "$(POD_NAME)",
            "k8s.pod.uid": "$(POD_UID)",
            "k8s.namespace.name": "$(POD_NAMESPACE)",
            "k8s.node.name": "$(NODE_NAME)",
        } | ({"service.version": tag} if tag else {})
        for variable, field in fields.items():
            assert environment[variable] == {"fieldRef": {"fieldPath": field}}
            # Kubernetes replaces references to variables that stand before.
            assert order.index(variable) < order.index("OTEL_RESOURCE_ATTRIBUTES")


def test_in_process_there_is_no_listener_beside_the_server() -> None:
    release = render(listener={"mode": "inProcess"})
    assert list(release.containers) == ["install", "shipper", "server"]
    assert "INFERENCE_LOGGING_LISTENER" not in release.environment("server")


def test_beside_a_listener_the_server_only_produces() -> None:
    release = render()
    assert release.environment("server")["INFERENCE_LOGGING_LISTENER"] == "external"
    assert "INFERENCE_LOGGING_LISTENER" not in release.environment("listener")


FOREIGN = {"otel-collector": "/otelcol-contrib", "fluent-bit": "/fluent-bit/bin/fluent-bit", "vector": "vector"}


@pytest.mark.parametrize("shipper", [*FOREIGN, "inference-logging"])
def test_listener_and_shipper_have_a_parent_that_stays_while_they_end(shipper: str) -> None:
    release = render(
        shipper={"type": shipper, "flushSeconds": 7}, destination={"type": "kafka", "endpoints": ["k:9092"]}
    )
    children = {"listener": ["/inference-logging-listener", "listen"]}
    children["shipper"] = [FOREIGN[shipper]] if shipper in FOREIGN else ["inference-logging", "ship"]
    ports = {}
    for name, child in children.items():
        container = release.containers[name]
        program, command = container["command"]
        assert (Path(program).name, command) == ("inference-logging-listener", "supervise")
        options, started = parted(container)
        assert started[: len(child)] == child
        # 90 % of 256Mi: at the limit the kernel ends the parent, too.
        assert options["--memory-bytes"] == str(256 * MIB * 9 // 10)
        assert "livenessProbe" not in container, "a container that is replaced makes the pod unready"
        ports[name] = int(options["--metrics-port"])
        assert ports[name] in {port["containerPort"] for port in container["ports"]}
        # Those of others stop reading when they are asked to end; ours ships what is there.
        assert options.get("--delay") == ("7" if name == "shipper" and shipper in FOREIGN else None)
    assert len({*ports.values()}) == 2


def test_a_listener_that_hangs_is_replaced_and_leaves_the_shipper_its_time_at_the_end() -> None:
    release = render(config={"drain_deadline_s": 7.5}, listener={"port": 9999})
    options, _ = parted(release.containers["listener"])
    assert (options["--live-port"], options["--kill-after"]) == ("9999", "13")


def test_a_shipper_of_others_gets_its_parent_from_the_listeners_image() -> None:
    release = render(shipper={"image": {"program": "/otelcol"}})
    install, shipper = release.containers["install"], release.containers["shipper"]
    assert install["image"] == release.containers["listener"]["image"]
    *_, target = install["command"]
    (mounted,) = (one["mountPath"] for one in shipper["volumeMounts"] if one["name"] == "program")
    assert mount(install, "program")["mountPath"] == mounted == target == str(Path(shipper["command"][0]).parent)
    assert parted(shipper)[1][0] == "/otelcol"
    ours = render(shipper={"type": "inference-logging"})
    assert list(ours.containers) == ["shipper", "listener", "server"]
    assert "program" not in ours.volumes


@pytest.mark.parametrize("shipper", ["otel-collector", "fluent-bit", "inference-logging", "none"])
def test_each_image_of_ours_that_a_pod_needs_is_asked_for_by_the_name_that_make_images_builds(shipper: str) -> None:
    rules = (CHART.parent / "make" / "release.mk").read_text(encoding="utf-8")
    made = re.findall(r"^IMAGES := (.*)$", rules, re.MULTILINE)
    built = {one.partition("=")[0] for one in made[0].split()}
    unnamed = {"repository": ""}
    error = render(shipper={"type": shipper}, image=unnamed, listener={"image": unnamed}).error
    # The quick starts need no other one than the first.
    asked = {"inferlog-listener"} | ({"inferlog"} if shipper == "inference-logging" else set())
    assert set(re.findall(r"`make images` builds (\S+)", error)) == asked
    assert asked <= built


def test_without_shipper_and_listener_there_are_no_init_containers() -> None:
    release = render(listener={"mode": "inProcess"}, shipper={"type": "none"})
    assert "initContainers" not in release.pod


# Volumes


def test_queues_are_in_memory_and_shared_by_server_and_listener() -> None:
    release = render()
    assert release.volumes["queue"]["emptyDir"]["medium"] == "Memory"
    for name in ("server", "listener"):
        assert mount(release.containers[name], "queue")["mountPath"] == QUEUE
    # Made by the package with mode 0700: the volume itself is the group's, and refused.
    assert release.yaml("logging.yaml")["queue_directory"].startswith(f"{QUEUE}/")


def test_a_shipper_has_segments_and_no_queue() -> None:
    shipper = render().containers["shipper"]
    assert mount(shipper, "segments")["mountPath"] == SEGMENTS
    assert [one["name"] for one in shipper["volumeMounts"]] == ["segments", "shipper-config", "program"]


@pytest.mark.parametrize(
    ("processes", "config"),
    [
        (1, {}),
        (4, {"queue_bytes": "32MiB"}),
        (3, {"queue_bytes": 100_000_000, "in_flight_slots": 0}),
        (2, {"queue_bytes": "1Gi", "in_flight_slots": 65536}),
        (2, {"audit": "on", "audit_queue_bytes": "5 MB"}),
        (2, {"audit": "on", "advanced": {"audit_queue_bytes": "5 MB", "in_flight_slots": 65536}}),
    ],
)
def test_the_queue_volume_has_room_for_all_processes_twice(processes: int, config: dict[str, Any]) -> None:
    release = render(server={"processes": processes}, config=config)
    given = Config(**config)
    pages = -(-given.in_flight_slots * 2048 // 4096) * 4096
    file = (64 << 10) + pages + given.queue_bytes
    audit = ((64 << 10) + given.audit_queue_bytes) if given.audit == "on" else 0
    needed = 2 * (processes * (file + audit) + MIB)
    limit = release.volumes["queue"]["emptyDir"]["sizeLimit"]
    assert limit.endswith("Mi")
    assert needed <= int(limit.removesuffix("Mi")) * MIB < needed + MIB


def test_the_size_of_a_queue_file_is_what_the_chart_counts(tmp_path: Any) -> None:
    from inference_logging import Logger

    config = Config(directory=tmp_path / "s", queue_directory=tmp_path / "q", audit="on")
    with Logger(config):
        files = [path.stat().st_size for path in (tmp_path / "q").rglob("*") if path.stat().st_size > MIB]
    counted = [(64 << 10) + 1024 * 2048 + config.queue_bytes, (64 << 10) + config.audit_queue_bytes]
    assert sorted(files, reverse=True) == counted


def test_segments_are_on_an_empty_dir_with_a_limit_and_a_quota_below_it() -> None:
    release = render(storage={"segments": {"size": "10Gi"}})
    assert release.volumes["segments"]["emptyDir"] == {"sizeLimit": "10Gi"}
    assert release.yaml("logging.yaml")["quota_bytes"] == (10 << 30) * 8 // 10


def test_segments_are_on_a_claim_of_the_charts_or_of_ones_own() -> None:
    made = render(storage={"segments": {"persistence": {"enabled": True, "storageClassName": "fast"}}})
    claim = made.one("PersistentVolumeClaim")
    assert made.volumes["segments"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert (claim["spec"]["storageClassName"], claim["spec"]["accessModes"]) == ("fast", ["ReadWriteOnce"])
    own = render(storage={"segments": {"persistence": {"enabled": True, "existingClaim": "mine"}}})
    assert own.all("PersistentVolumeClaim") == []
    assert own.volumes["segments"]["persistentVolumeClaim"]["claimName"] == "mine"


def test_a_volume_that_can_be_mounted_once_is_given_up_before_the_next_pod_takes_it() -> None:
    once = render(storage={"segments": {"persistence": {"enabled": True}}})
    assert once.one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    assert render().one("Deployment")["spec"]["strategy"]["type"] == "RollingUpdate"


@pytest.mark.parametrize(
    ("values", "surge"), [({}, 1), ({"preset": "vllm"}, 0), ({"preset": "vllm", "server": {"gpu": {"count": 0}}}, 1)]
)
def test_an_update_waits_for_no_gpu_that_is_free(values: dict[str, Any], surge: int) -> None:
    rolling = {"maxSurge": surge, "maxUnavailable": 1 - surge}
    assert render(**values).one("Deployment")["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    own = {"type": "Recreate"}
    assert render(**values, strategy=own).one("Deployment")["spec"]["strategy"] == own


def test_pods_that_share_a_volume_have_a_directory_each() -> None:
    shared = {"enabled": True, "accessModes": ["ReadWriteMany"]}
    release = render(replicaCount=3, storage={"segments": {"persistence": shared}})
    for name in SHARING:
        assert mount(release.containers[name], "segments")["subPathExpr"] == "$(POD_NAME)"
        assert release.environment(name)["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}


def test_vllm_and_triton_have_shared_memory_and_others_when_asked() -> None:
    sizes = {preset: render(preset=preset).volumes.get("shm") for preset in PRESETS}
    assert [preset for preset in PRESETS if sizes[preset]] == ["vllm", "triton"]
    assert mount(render(preset="vllm").containers["server"], "shm")["mountPath"] == "/dev/shm"
    assert "shm" not in render(preset="vllm", server={"shm": {"sizeLimit": "0"}}).volumes
    assert render(server={"shm": {"sizeLimit": "1Gi"}}).volumes["shm"]["emptyDir"]["sizeLimit"] == "1Gi"


def test_files_that_the_configuration_names_can_be_mounted_in_each_container() -> None:
    key = {"name": "key", "mountPath": "/key", "readOnly": True}
    volume = {"name": "key", "secret": {"secretName": "chain"}}
    given = {name: {"extraVolumeMounts": [key]} for name in SHARING}
    release = render(extraVolumes=[volume], config={"audit_chain_key_file": "/key/chain"}, **given)
    assert release.volumes["key"] == volume
    assert all(mount(release.containers[name], "key") == key for name in SHARING)


def test_variables_of_ones_own_come_after_the_charts() -> None:
    given = {name: {"env": [{"name": "OWN", "value": name}]} for name in SHARING}
    release = render(**given)
    for name in SHARING:
        assert release.containers[name]["env"][-1] == {"name": "OWN", "value": name}


# Security


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("mode", MODES)
def test_every_container_is_unprivileged_and_writes_to_volumes_only(preset: str, mode: str) -> None:
    release = render(preset=preset, listener={"mode": mode})
    pod = release.pod["securityContext"]
    assert (pod["runAsNonRoot"], pod["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    # One user for all: queue and segments are their owner's only.
    assert pod["runAsUser"] > 0
    assert pod["fsGroup"] == pod["runAsGroup"]
    for container in release.containers.values():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_there_is_no_token_of_the_api_server_unless_asked() -> None:
    release = render()
    assert release.pod["automountServiceAccountToken"] is False
    assert release.one("ServiceAccount")["automountServiceAccountToken"] is False
    assert render(serviceAccount={"automountToken": True}).pod["automountServiceAccountToken"] is True
    assert render(serviceAccount={"create": False}).pod["serviceAccountName"] == "default"


def test_the_home_and_the_temporary_directory_of_the_server_can_be_written() -> None:
    release = render()
    server, environment = release.containers["server"], release.environment("server")
    assert mount(server, "cache")["mountPath"] == environment["HOME"] == environment["XDG_CACHE_HOME"]
    assert mount(server, "tmp")["mountPath"] == "/tmp"
    claimed = render(server={"cache": {"existingClaim": "models"}}).volumes["cache"]
    assert claimed["persistentVolumeClaim"]["claimName"] == "models"


def test_variables_of_services_are_kept_out() -> None:
    assert render().pod["enableServiceLinks"] is False


# Resources


def test_sidecars_ask_for_little_and_the_shipper_for_least() -> None:
    containers = render().containers
    shipper, listener = (containers[name]["resources"] for name in ("shipper", "listener"))
    assert (shipper["requests"]["cpu"], listener["requests"]["cpu"]) == ("10m", "20m")
    assert "cpu" not in {**shipper["limits"], **listener["limits"]}
    assert shipper["limits"]["memory"] == listener["limits"]["memory"] == "256Mi"


def test_gpus_are_a_limit_beside_what_is_asked_for() -> None:
    assert render(preset="vllm").containers["server"]["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    both = render(server={"gpu": {"count": 2, "resource": "amd.com/gpu"}, "resources": {"limits": {"memory": "1Gi"}}})
    assert both.containers["server"]["resources"] == {"limits": {"memory": "1Gi", "amd.com/gpu": 2}}
    assert "resources" not in render(preset="vllm", server={"gpu": {"count": 0}}).containers["server"]


# The end


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        # preStop 5, server 30, its drain 5, the listener's 5, the shipper's time 5, its end 5, and 5 more.
        ({}, 60),
        ({"preset": "vllm"}, 90),
        ({"shipper": {"type": "none"}}, 50),
        ({"shipper": {"flushSeconds": 60}}, 115),
        ({"shipper": {"type": "inference-logging", "flushSeconds": 60}}, 110),
        ({"listener": {"mode": "inProcess"}}, 55),
        ({"config": {"drain_deadline_s": 20}}, 90),
        ({"config": {"drain_deadline_s": 0.5}}, 52),
        ({"server": {"shutdownSeconds": 100, "preStopSleepSeconds": 0}}, 125),
        ({"terminationGracePeriodSeconds": 600}, 600),
    ],
)
def test_the_grace_period_is_what_the_end_takes_one_after_the_other(values: dict[str, Any], seconds: int) -> None:
    assert render(**values).pod["terminationGracePeriodSeconds"] == seconds


def test_endpoints_are_gone_before_the_server_is_asked_to_end() -> None:
    assert render().containers["server"]["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}
    own = {"preStop": {"exec": {"command": ["drain"]}}}
    assert render(server={"lifecycle": own}).containers["server"]["lifecycle"] == own


@pytest.mark.parametrize(
    ("preset", "option"),
    [
        ("fastapi", "--timeout-graceful-shutdown=7"),
        ("vllm", "--shutdown-timeout=7"),
        ("triton", "--exit-timeout-secs=7"),
    ],
)
def test_the_server_gets_how_long_its_end_may_take(preset: str, option: str) -> None:
    assert option in render(preset=preset, server={"shutdownSeconds": 7}).containers["server"]["args"]
