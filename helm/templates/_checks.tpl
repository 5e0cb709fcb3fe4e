{{/*
What no schema can say: values that are right each by itself and not together. All of it is reported at once, each line with
parameter and value.
*/}}

{{- define "inference-logging.checks" -}}
{{- $found := list }}
{{- range list "node" "images" "server" "config" "queue" "segments" "shipper" "destination" "rest" }}
{{- $found = concat $found (include (printf "inference-logging.checks.%s" .) $ | trim | splitList "\n" | compact) }}
{{- end }}
{{- if $found }}
{{- fail (printf "\n%s" (join "\n" (sortAlpha $found))) }}
{{- end }}
{{- end }}

{{/* What a node's listener and shipper, or a server that leaves both to them, cannot have. */}}
{{- define "inference-logging.checks.node" -}}
{{- if eq .Values.mode "node" }}
{{- if not .Values.node.namespaces }}
node.namespaces: must name the namespaces whose pods write to the node's listener
{{- end }}
{{- if or .Values.config.retention_waits_for (.Values.config.advanced | default dict).retention_waits_for }}
config.retention_waits_for: must be empty with mode=node: a node's shipper leaves no marks on the segments of pods
{{- end }}
{{- if and (eq .Values.shipper.type "inference-logging") .Values.config.audit_directory }}
config.audit_directory={{ .Values.config.audit_directory }}: must be left out with mode=node and shipper.type=inference-logging, which looks for audit below the segments of each pod
{{- end }}
{{- if and (eq .Values.destination.type "loki") (ne .Values.shipper.type "otel-collector") }}
destination.type=loki: must be by otel-collector with mode=node, as the labels of a stream are those of one pod elsewhere
{{- end }}
{{- if eq (include "inference-logging.hasAuditDatabase" .) "true" }}
config.audit_sink=sqlite: must be file with mode=node
{{- end }}
{{- if eq .Values.monitor.kind "ServiceMonitor" }}
monitor.kind=ServiceMonitor: there is no Service with mode=node; use PodMonitor
{{- end }}
{{- if and .Values.node.inject.enabled (semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version) }}
node.inject.enabled: needs Kubernetes 1.36, whose API server changes pods by a policy; this one is {{ .Capabilities.KubeVersion.Version }}
{{- end }}
{{- if ne .Values.listener.mode "sidecar" }}
listener.mode={{ .Values.listener.mode }}: is for mode=server
{{- end }}
{{- else if eq .Values.listener.mode "node" }}
{{- if ne .Values.shipper.type "none" }}
shipper.type={{ .Values.shipper.type }}: must be none with listener.mode=node: the node's shipper does it
{{- end }}
{{- if .Values.storage.segments.persistence.enabled }}
storage.segments.persistence.enabled: must be false with listener.mode=node: segments are the node's
{{- end }}
{{- end }}
{{- end }}

{{/* The images that pods have of those without a default: no registry has them. */}}
{{- define "inference-logging.checks.images" -}}
{{- $isDatabase := eq (include "inference-logging.hasAuditDatabase" .) "true" }}
{{- $isForeign := eq (include "inference-logging.isForeign" .) "true" }}
{{- if and (eq .Values.mode "server") (not .Values.server.image.repository) }}
server.image.repository: must be given: an image with your server and the package inferlog
{{- end }}
{{- if and (or $isForeign (and (eq .Values.listener.mode "sidecar") (not $isDatabase))) (not .Values.listener.image.repository) }}
listener.image.repository: must be given: none is published; `make images` builds inferlog-listener
{{- end }}
{{- if and (or $isDatabase (eq .Values.shipper.type "inference-logging")) (not .Values.image.repository) }}
image.repository: must be given: none is published; `make images` builds inferlog
{{- end }}
{{- end }}

{{- define "inference-logging.checks.server" -}}
{{- if eq .Values.mode "server" }}
{{- $server := include "inference-logging.server" . | fromYaml }}
{{- if and (has .Values.preset (list "vllm" "triton")) (not (or $server.model $server.command $server.args)) }}
server.model: must be given for the preset {{ .Values.preset }}
{{- end }}
{{- if and (eq .Values.preset "fastapi") (not (or $server.application $server.command $server.args)) }}
server.application: must be given for the preset fastapi, such as app:app
{{- end }}
{{- if not $server.port }}
server.port: must be given for the preset {{ .Values.preset }}
{{- end }}
{{- $set := ternary dict (include "inference-logging.setBy" . | fromYaml) (or (not (empty $server.command)) (not (empty $server.args))) }}
{{- range $server.extraArgs }}
{{- $option := regexFind "^--[a-zA-Z0-9_-]+" (toString .) | trimPrefix "--" | replace "_" "-" }}
{{- with get $set $option }}
server.extraArgs: --{{ $option }} is set by the chart; use {{ . }}
{{- end }}
{{- end }}
{{- range $name, $probe := $server.probes }}
{{- if and (kindIs "map" $probe) $probe.httpGet (not $probe.httpGet.path) }}
server.probes: {{ $name }} has no path, as config has no route for it; give it a handler or set enabled to false
{{- end }}
{{- end }}
{{- $needed := include "inference-logging.neededGraceSeconds" . | int64 }}
{{- if lt (include "inference-logging.graceSeconds" . | int64) $needed }}
terminationGracePeriodSeconds={{ int64 .Values.terminationGracePeriodSeconds }}: must be at least {{ $needed }}, which drain and delivery may take
{{- end }}
{{- end }}
{{- end }}

{{- define "inference-logging.checks.config" -}}
{{- range list "directory" "queue_directory" "listener" "ship_to" "ship_name" }}
{{- if hasKey $.Values.config . }}
config.{{ . }}={{ get $.Values.config . }}: the chart sets it; leave it out
{{- end }}
{{- end }}
{{- $said := .Files.Get "files/parameters.yaml" | fromYaml }}
{{- range $prefix, $group := dict "config" .Values.config "config.advanced" (.Values.config.advanced | default dict) }}
{{- range $name, $value := $group }}
{{- with get $said $name }}
{{- if and .number (kindIs "string" $value) (regexMatch "^[0-9]+[.][0-9]+$" (toString $value)) }}
{{ $prefix }}.{{ $name }}={{ $value }}: a text, as --set makes of it; write --set-json {{ $prefix }}.{{ $name }}={{ $value }}
{{- else if .switch }}
{{- if eq (toString $value) "true" }}
{{ $prefix }}.{{ $name }}=true: must be {{ .must }} YAML reads on as true; write {{ $name }}: "on"
{{- end }}
{{- else if include "inference-logging.refused" (list . $value) }}
{{ $prefix }}.{{ $name }}={{ $value }}: must be {{ .must }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $sink := include "inference-logging.parameter" (list . "sink") }}
{{- if and (ne $sink "file") (ne .Values.shipper.type "none") }}
config.sink={{ $sink }}: must be file, as shipper.type={{ .Values.shipper.type }} reads segments
{{- end }}
{{- end }}

{{/* Says something if a text is not allowed in a parameter: (list of what files/parameters.yaml has of it, its value). */}}
{{- define "inference-logging.refused" -}}
{{- $rule := index . 0 }}
{{- $value := index . 1 }}
{{- if kindIs "string" $value }}
{{- if or $rule.number (not (regexMatch ($rule.text | default "") $value)) }}refused{{ end }}
{{- else if kindIs "slice" $value }}
{{- range $value }}{{ include "inference-logging.refused" (list $rule .) }}{{ end }}
{{- else if kindIs "map" $value }}
{{- range $name, $inner := $value }}
{{- include "inference-logging.refused" (list (dict "text" $rule.name) $name) }}
{{- include "inference-logging.refused" (list $rule $inner) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "inference-logging.checks.queue" -}}
{{- if eq .Values.mode "server" }}
{{- $needed := include "inference-logging.neededQueueBytes" . | int64 }}
{{- $limit := include "inference-logging.queueSizeLimit" . }}
{{- $bytes := include "inference-logging.bytes" $limit | int64 }}
{{- $each := include "inference-logging.bytes" (include "inference-logging.parameter" (list . "queue_bytes")) }}
{{- if lt $bytes $needed }}
storage.queue.sizeLimit={{ $limit }}: must be at least {{ div $needed 1048576 }}Mi, for the queues of server.processes={{
  int64 .Values.server.processes }} with config.queue_bytes={{ $each }}
{{- end }}
{{- $each := (include "inference-logging.server" . | fromYaml).processBytes | int64 }}
{{- $needed = add $bytes (mul (int64 .Values.server.processes) $each) }}
{{- with (.Values.server.resources.limits | default dict).memory }}
{{- if lt (include "inference-logging.bytes" . | int64) $needed }}
server.resources.limits.memory={{ . }}: must be at least {{ div (add $needed 1048575) 1048576 }}Mi: {{ $limit }} of queues and {{
  div $each 1048576 }}Mi for each of server.processes
{{- end }}
{{- end }}
{{- with (.Values.listener.resources.limits | default dict).memory }}
{{- if lt (include "inference-logging.bytes" . | int64) 33554432 }}
listener.resources.limits.memory={{ . }}: must be at least 32Mi
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "inference-logging.checks.segments" -}}
{{- $size := include "inference-logging.bytes" .Values.storage.segments.size | int64 }}
{{- $quota := include "inference-logging.quotaBytes" . | int64 }}
{{- $least := mul 2 (include "inference-logging.bytes" (include "inference-logging.parameter" (list . "rotate_bytes")) | int64) }}
{{- $persistence := .Values.storage.segments.persistence }}
{{- if and (eq $quota 0) (not $persistence.enabled) }}
config.quota_bytes=0: must be a limit where segments are on an emptyDir, since a pod above its size is evicted
{{- end }}
{{- if gt $quota $size }}
config.quota_bytes={{ $quota }}: must be below storage.segments.size={{ .Values.storage.segments.size }}
{{- end }}
{{- if and (gt $quota 0) (lt $quota $least) }}
storage.segments.size={{ .Values.storage.segments.size }}: leaves segments {{ $quota }} bytes, but two of config.rotate_bytes take {{ $least }}
{{- end }}
{{- if and $persistence.enabled (ne (include "inference-logging.isShared" .) "true") }}
{{- if or .Values.autoscaling.enabled (gt (int64 .Values.replicaCount) 1) }}
storage.segments.persistence.accessModes={{ join "," $persistence.accessModes }}: must be ReadWriteMany for more than one pod
{{- end }}
{{- end }}
{{- end }}

{{/* Whether several pods may have the claim. */}}
{{- define "inference-logging.isShared" -}}
{{- and .Values.storage.segments.persistence.enabled (has "ReadWriteMany" .Values.storage.segments.persistence.accessModes) }}
{{- end }}

{{- define "inference-logging.checks.shipper" -}}
{{- $can := dict
  "otel-collector" (list "otlp" "kafka" "loki" "elasticsearch")
  "fluent-bit" (list "otlp" "kafka" "loki" "elasticsearch" "forward")
  "vector" (list "kafka" "loki" "elasticsearch")
  "inference-logging" (list "otlp" "kafka" "elasticsearch" "clickhouse" "syslog") }}
{{- $shipper := .Values.shipper.type }}
{{- $type := .Values.destination.type }}
{{- if and (ne $shipper "none") (not (has $type (get $can $shipper))) }}
destination.type={{ $type }}: {{ $shipper }} can't deliver to it; it can to {{ join ", " (get $can $shipper) }}
{{- end }}
{{- if and (eq (include "inference-logging.isForeign" .) "true") (or .Values.config.retention_waits_for (.Values.config.advanced | default dict).retention_waits_for) }}
config.retention_waits_for: must be empty: {{ $shipper }} leaves no marks on segments, so none would ever be removed
{{- end }}
{{- if and (eq (include "inference-logging.isForeign" .) "true") (eq (include "inference-logging.parameter" (list . "compress")) "zstd") }}
config.compress=zstd: {{ $shipper }} reads plain segments only, and would miss what is compressed before it comes to it
{{- end }}
{{- range include "inference-logging.segmentFiles" . | fromYamlArray }}
{{- $file := . }}
{{- $has := hasPrefix "/var/log/inference-logging/" $file }}
{{- range $.Values.shipper.extraVolumeMounts }}{{ $has = or $has (hasPrefix (printf "%s/" (trimSuffix "/" .mountPath)) $file) }}{{ end }}
{{- if not (or $has (eq $shipper "none")) }}
config.audit_directory={{ dir $file }}: no volume of the shipper has it; mount it with shipper.extraVolumeMounts
{{- end }}
{{- end }}
{{- $signal := .Values.destination.signal }}
{{- if and (ne $signal "logs") (not (and (eq $shipper "inference-logging") (eq $type "otlp"))) (ne $shipper "none") }}
destination.signal={{ $signal }}: only the shipper inference-logging makes spans, and for otlp
{{- end }}
{{- $keys := .Values.destination.keys }}
{{- if eq $shipper "inference-logging" }}
{{- range list "username" "password" "token" }}
{{- if get $keys . }}
{{- $instead := get (dict "kafka" "keys.kafkaProperties" "otlp" "keys.headers" "elasticsearch" "keys.headers" "clickhouse" "keys.headers") $type | default "tls.client" }}
destination.keys.{{ . }}: the shipper inference-logging takes {{ $instead }} instead
{{- end }}
{{- end }}
{{- if and (eq $type "elasticsearch") (not (regexMatch "^[a-z0-9][a-z0-9._-]{0,199}$" .Values.destination.index)) }}
destination.index={{ .Values.destination.index }}: must be small letters, digits, . _ - for the shipper inference-logging, which adds the day
{{- end }}
{{- if and .Values.destination.tls.client.existingSecret (ne $type "syslog") }}
destination.tls.client: the shipper inference-logging has one for syslog, and for kafka in the file of keys.kafkaProperties
{{- end }}
{{- if and (eq $type "kafka") .Values.destination.tls.enabled (not $keys.kafkaProperties) }}
destination.keys.kafkaProperties: must be given for TLS: a file that says security.protocol=SSL or SASL_SSL
{{- end }}
{{- else }}
{{- range list "kafkaProperties" "headers" }}
{{- if get $keys . }}
destination.keys.{{ . }}: only the shipper inference-logging takes it
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "inference-logging.checks.destination" -}}
{{- if ne .Values.shipper.type "none" }}
{{- $destination := .Values.destination }}
{{- $url := has $destination.type (list "otlp" "loki" "elasticsearch" "clickhouse") }}
{{- if not $destination.endpoints }}
destination.endpoints: must be given, or shipper.type=none
{{- end }}
{{- $oneElasticsearch := and (eq $destination.type "elasticsearch") (has .Values.shipper.type (list "fluent-bit" "inference-logging")) }}
{{- $one := or $oneElasticsearch (not (has $destination.type (list "kafka" "elasticsearch"))) }}
{{- if and $one (gt (len $destination.endpoints) 1) }}
destination.endpoints: must be one for {{ $destination.type }} by {{ .Values.shipper.type }}
{{- end }}
{{- $form := ternary "^https?://[^@/\\s:]+(:[0-9]{1,5})?(/\\S*)?$" "^[^@/\\s:]+:[0-9]{1,5}$" $url }}
{{- range $destination.endpoints }}
{{- if contains "@" . }}
destination.endpoints: must hold no user and no password; they are keys of destination.existingSecret
{{- else if not (regexMatch $form .) }}
destination.endpoints={{ . }}: must be {{ ternary "a URL, http:// or https://" "host:port" $url }} for {{ $destination.type }}
{{- else if and (eq $destination.type "otlp") (regexMatch "/v1/(logs|traces)/?$" .) }}
destination.endpoints={{ . }}: must be without /v1/logs and /v1/traces, which the shipper adds
{{- else if and (eq $destination.type "clickhouse") (regexMatch "^https?://[^/]+/." .) }}
destination.endpoints={{ . }}: must end with host or port for clickhouse; the database is destination.database
{{- end }}
{{- end }}
{{- if and $url $destination.tls.enabled }}
destination.tls.enabled: is for kafka, forward and syslog; for {{ $destination.type }} write https:// in destination.endpoints
{{- end }}
{{- range $name, $key := $destination.keys }}
{{- if and $key (not $destination.existingSecret) }}
destination.keys.{{ $name }}={{ $key }}: needs destination.existingSecret, whose key it is
{{- end }}
{{- end }}
{{- if ne (empty $destination.keys.username) (empty $destination.keys.password) }}
destination.keys: username and password belong together
{{- end }}
{{- if and $destination.keys.token (or $destination.keys.username (has $destination.type (list "kafka" "clickhouse" "forward" "syslog"))) }}
destination.keys.token: is for otlp, loki and elasticsearch, in the place of username and password
{{- end }}
{{- if and $destination.keys.sharedKey (ne $destination.type "forward") }}
destination.keys.sharedKey: is for forward
{{- end }}
{{- if and (eq $destination.type "kafka") $destination.keys.username (not $destination.mechanism) }}
destination.mechanism: must be given where kafka has a username
{{- end }}
{{- end }}
{{- end }}

{{- define "inference-logging.checks.rest" -}}
{{- $taken := dict }}
{{- range include "inference-logging.servicePorts" . | fromYamlArray }}
{{- $port := int64 .targetPort | toString }}
{{- if hasKey $taken $port }}
{{ get $taken $port }} and {{ .name }}: have the same port {{ $port }}, and a pod has each port once
{{- end }}
{{- $_ := set $taken $port .name }}
{{- end }}
{{- with .Values.autoscaling }}
{{- if and .enabled (gt (int64 .minReplicas) (int64 .maxReplicas)) }}
autoscaling.minReplicas={{ int64 .minReplicas }}: must be at most autoscaling.maxReplicas={{ int64 .maxReplicas }}
{{- end }}
{{- end }}
{{- with .Values.podDisruptionBudget }}
{{- if and .enabled (eq (kindIs "invalid" .minAvailable) (kindIs "invalid" .maxUnavailable)) }}
podDisruptionBudget: must have one of minAvailable and maxUnavailable
{{- end }}
{{- end }}
{{- range list "containers" "initContainers" "volumes" "nodeSelector" "tolerations" "affinity" "securityContext" "imagePullSecrets" "serviceAccountName" "automountServiceAccountToken" "enableServiceLinks" "terminationGracePeriodSeconds" }}
{{- if hasKey $.Values.podSpec . }}
podSpec.{{ . }}: the chart sets it, from a value of its own
{{- end }}
{{- end }}
{{- if and .Values.monitor.kind (not (include "inference-logging.metrics" . | fromYaml)) }}
listener.mode={{ .Values.listener.mode }}: serves no metrics for the preset {{ .Values.preset }}; set config.metrics_path, or leave listener.mode=sidecar
{{- end }}
{{- end }}
