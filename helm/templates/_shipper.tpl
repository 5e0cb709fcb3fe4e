{{/*
The shipper: {image, port, metricsPath, command, args, env, config, configFile}. Each kind has a file of its own for its
configuration, in which secrets are only named: the environment has them.
*/}}

{{- define "inference-logging.shipper" -}}
{{- include (printf "inference-logging.shipper.%s" .Values.shipper.type) . }}
{{- end }}

{{/* The file of a shipper that has one; ours is configured by its environment. */}}
{{- define "inference-logging.shipperConfig" -}}
{{- if eq (include "inference-logging.isForeign" .) "true" }}
{{- include (printf "inference-logging.config.%s" .Values.shipper.type) . | trim }}
{{- end }}
{{- end }}

{{- define "inference-logging.shipper.otel-collector" -}}
port: {{ include "inference-logging.shipperPort" . }}
metricsPath: /metrics
configFile: otel-collector.yaml
command: [{{ (include "inference-logging.shipperImage" . | fromYaml).program }}]
args:
  - --config=/etc/shipper/otel-collector.yaml
  # A line counts as read when the destination has it, not when it is in the collector's memory.
  - --feature-gates=stanza.synchronousLogEmitter
{{- with (.Values.shipper.resources.limits | default dict).memory }}
env:
  - { name: GOMEMLIMIT, value: {{ div (mul (include "inference-logging.bytes" . | int64) 8) 10 | quote }} }
{{- end }}
{{- end }}

{{- define "inference-logging.shipper.fluent-bit" -}}
port: {{ include "inference-logging.shipperPort" . }}
metricsPath: /api/v2/metrics/prometheus
configFile: fluent-bit.yaml
command: [{{ (include "inference-logging.shipperImage" . | fromYaml).program }}]
args: [--config=/etc/shipper/fluent-bit.yaml]
{{- end }}

{{- define "inference-logging.shipper.vector" -}}
port: {{ include "inference-logging.shipperPort" . }}
metricsPath: /metrics
configFile: vector.yaml
command: [{{ (include "inference-logging.shipperImage" . | fromYaml).program }}]
args: [--config, /etc/shipper/vector.yaml]
{{- end }}

{{- define "inference-logging.shipper.inference-logging" -}}
{{- $destination := .Values.destination }}
{{- $endpoint := first $destination.endpoints | default "" }}
{{- $to := printf "otlp+%s" $endpoint }}
{{- if ne $destination.signal "logs" }}{{ $to = printf "%s?signal=%s" $to $destination.signal }}{{ end }}
{{- if eq $destination.type "kafka" }}{{ $to = printf "kafka://%s/%s" (join "," $destination.endpoints) $destination.topic }}{{ end }}
{{- $options := list }}
{{- if eq $destination.type "clickhouse" }}
{{- $server := trimSuffix "/" $endpoint }}
{{- with $destination.user }}{{ $server = replace "://" (printf "://%s@" .) $server }}{{ end }}
{{- $to = printf "clickhouse+%s/%s" $server $destination.database }}
{{- with int64 $destination.ttlDays }}{{ $options = list (printf "ttl_days=%d" .) }}{{ end }}
{{- end }}
{{- if eq $destination.type "elasticsearch" }}{{ $to = printf "elasticsearch+%s/%s" (trimSuffix "/" $endpoint) $destination.index }}{{ end }}
{{- if eq $destination.type "syslog" }}
{{- $to = printf "syslog+%s://%s" (ternary "tls" "tcp" $destination.tls.enabled) $endpoint }}
{{- $options = list (printf "max_bytes=%d" (int64 $destination.maxBytes)) }}
{{- range $name, $path := include "inference-logging.tlsFiles" . | fromYaml }}
{{- if ne $name "ca" }}{{ $options = append $options (printf "%s=%s" $name $path) }}{{ end }}
{{- end }}
{{- end }}
{{- with $options }}{{ $to = printf "%s?%s" $to (join "&" .) }}{{ end }}
{{- $port := include "inference-logging.shipperPort" . }}
port: {{ $port }}
metricsPath: /metrics
command: [inference-logging, ship]
args:
  - --metrics-port={{ $port }}
  {{- if eq .Values.mode "node" }}
  - --each=/var/log/inference-logging/segments/{k8s.namespace.name}/{k8s.pod.name}
  - --state=/var/log/inference-logging/inference-logging
  {{- end }}
env:
  - { name: INFERENCE_LOGGING_CONFIG_FILE, value: /etc/inference-logging/logging.yaml }
  - { name: INFERENCE_LOGGING_SHIP_TO, value: {{ $to | quote }} }
  - { name: INFERENCE_LOGGING_SHIP_NAME, value: {{ $destination.type }} }
  # The whole end of the pod: it ends as soon as all is delivered, and a destination that is away gets what time is left.
  - { name: INFERENCE_LOGGING_DRAIN_DEADLINE_S, value: {{ include "inference-logging.graceSeconds" . | int64 | min 600 | quote }} }
  {{- range $key, $name := dict "kafkaProperties" "KAFKA_FILE" "headers" "HEADERS_FILE" }}
  {{- with get $destination.keys $key }}
  - { name: INFERENCE_LOGGING_SHIP_{{ $name }}, value: {{ printf "/etc/destination/keys/%s" . | quote }} }
  {{- end }}
  {{- end }}
  {{- with $destination.tls.ca }}
  {{- if .existingSecret }}
  - { name: INFERENCE_LOGGING_SHIP_CA_FILE, value: {{ printf "/etc/destination/ca/%s" .key | quote }} }
  {{- end }}
  {{- end }}
{{- end }}

{{/* {repository, tag, program}: shipper.image over what is known of the type. */}}
{{- define "inference-logging.shipperImage" -}}
{{- $image := get (.Files.Get "files/shippers.yaml" | fromYaml) .Values.shipper.type }}
{{- if eq .Values.shipper.type "inference-logging" }}{{ $image = deepCopy .Values.image }}{{ end }}
{{- include "inference-logging.overlay" (list $image .Values.shipper.image) }}
{{- toYaml $image }}
{{- end }}

{{- define "inference-logging.shipperPort" -}}
{{- .Values.shipper.port | default (get (.Files.Get "files/shippers.yaml" | fromYaml) .Values.shipper.type).port | int64 }}
{{- end }}

{{/* Starts before the listener and ends after it: what the listener drains is still delivered. */}}
{{- define "inference-logging.container.shipper" -}}
{{- $type := .Values.shipper.type }}
{{- $shipper := include "inference-logging.shipper" . | fromYaml }}
{{- $own := eq $type "inference-logging" }}
name: shipper
image: {{ include "inference-logging.image" (list (include "inference-logging.shipperImage" . | fromYaml) .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
restartPolicy: Always
{{ include "inference-logging.supervisedShipper" . }}
  {{- toYaml (concat $shipper.command $shipper.args) | nindent 2 }}
ports:
  - { name: ship-metrics, containerPort: {{ int64 $shipper.port }} }
  - { name: ship-up-metrics, containerPort: {{ include "inference-logging.upPort" "shipper" }} }
env:
  - name: POD_NAME
    valueFrom: { fieldRef: { fieldPath: metadata.name } }
  {{- with $shipper.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if not $own }}
  {{- range $key, $name := dict "username" "USERNAME" "password" "PASSWORD" "token" "TOKEN" "sharedKey" "SHARED_KEY" }}
  {{- with get $.Values.destination.keys $key }}
  - name: DESTINATION_{{ $name }}
    valueFrom:
      secretKeyRef: { name: {{ $.Values.destination.existingSecret | quote }}, key: {{ . | quote }} }
  {{- end }}
  {{- end }}
  {{- end }}
  {{- with .Values.shipper.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml .Values.shipper.resources | nindent 2 }}
securityContext:
  {{- if eq .Values.mode "node" }}
  {{- /* Root that reads the segments of all users, and may do nothing else that root may. */}}
  {{- include "inference-logging.nodeSecurity" (list "DAC_READ_SEARCH") | nindent 2 }}
  {{- else }}
  {{- toYaml .Values.securityContext | nindent 2 }}
  {{- end }}
volumeMounts:
  - {{ include "inference-logging.mount.segments" . }}
  {{- if $own }}
  - { name: logging-config, mountPath: /etc/inference-logging, readOnly: true }
  {{- else }}
  - { name: shipper-config, mountPath: /etc/shipper, readOnly: true }
  - { name: program, mountPath: /opt/inference-logging, readOnly: true }
  {{- end }}
  {{- range include "inference-logging.destinationVolumes" . | fromYamlArray }}
  - { name: {{ .name }}, mountPath: {{ .name | replace "-" "/" | printf "/etc/%s" }}, readOnly: true }
  {{- end }}
  {{- with .Values.shipper.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "inference-logging.isForeign" -}}
{{- has .Values.shipper.type (list "otel-collector" "fluent-bit" "vector") }}
{{- end }}

{{/* Secrets that are files: mounted at /etc/destination/ca, /client and /keys. */}}
{{- define "inference-logging.destinationVolumes" -}}
{{- $tls := .Values.destination.tls }}
{{- $none := eq .Values.shipper.type "none" }}
{{- if and $tls.ca.existingSecret (not $none) }}
- name: destination-ca
  secret: { secretName: {{ $tls.ca.existingSecret | quote }}, defaultMode: 0440, items: [{ key: {{ $tls.ca.key | quote }}, path: {{ $tls.ca.key | quote }} }] }
{{- end }}
{{- if and $tls.client.existingSecret (not $none) }}
- name: destination-client
  secret: { secretName: {{ $tls.client.existingSecret | quote }}, defaultMode: 0440 }
{{- end }}
{{- if eq .Values.shipper.type "inference-logging" }}
{{- $files := list }}
{{- range list "kafkaProperties" "headers" }}
{{- with get $.Values.destination.keys . }}{{ $files = append $files (dict "key" . "path" .) }}{{ end }}
{{- end }}
{{- with $files }}
- name: destination-keys
  secret: { secretName: {{ $.Values.destination.existingSecret | quote }}, defaultMode: 0440, items: {{ toJson . }} }
{{- end }}
{{- end }}
{{- end }}

{{/* {ca, cert, key}: the paths of what TLS needs, as far as it is given. */}}
{{- define "inference-logging.tlsFiles" -}}
{{- with .Values.destination.tls.ca }}
{{- if .existingSecret }}
ca: {{ printf "/etc/destination/ca/%s" .key | quote }}
{{- end }}
{{- end }}
{{- with .Values.destination.tls.client }}
{{- if .existingSecret }}
cert: {{ printf "/etc/destination/client/%s" .certKey | quote }}
key: {{ printf "/etc/destination/client/%s" .keyKey | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* {host, port, path, tls} of the first endpoint, a URL or host:port. */}}
{{- define "inference-logging.endpoint" -}}
{{- $given := first .Values.destination.endpoints | default "" }}
{{- $url := urlParse (ternary $given (printf "tcp://%s" $given) (contains "://" $given)) }}
{{- $secure := eq $url.scheme "https" }}
host: {{ regexReplaceAll ":[0-9]+$" $url.host "" | quote }}
{{- $usual := ternary (list "8443" "8123") (list "443" "80") (eq .Values.destination.type "clickhouse") }}
port: {{ regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (ternary (first $usual) (last $usual) $secure) }}
path: {{ trimSuffix "/" $url.path | quote }}
tls: {{ or $secure .Values.destination.tls.enabled }}
{{- end }}
