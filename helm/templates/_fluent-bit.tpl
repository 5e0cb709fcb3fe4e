{{/*
Fluent Bit: tails segments in pieces of 32 KB, with its database and its chunks on the volume of the segments. It reads
no further while 16 chunks wait for the destination, and gives none up.
*/}}
{{- define "inference-logging.config.fluent-bit" -}}
{{- $shipper := include "inference-logging.shipper" . | fromYaml }}
{{- $destination := .Values.destination }}
service:
  flush: 2
  grace: 5
  # Else a destination that was away for long is tried again after up to half an hour.
  scheduler.base: 1
  scheduler.cap: 30
  http_server: on
  http_listen: 0.0.0.0
  http_port: {{ int64 $shipper.port }}
  storage.path: /var/log/inference-logging/fluent-bit
  storage.sync: normal
  storage.max_chunks_up: 16
  storage.backlog.mem_limit: 16M
parsers:
  - name: segment
    format: json
    time_key: timestamp
    time_format: "%Y-%m-%dT%H:%M:%S.%L%z"
    time_keep: true
pipeline:
  inputs:
    - name: tail
      path: {{ include "inference-logging.segmentFiles" . | fromYamlArray | join "," }}
      tag: {{ $destination.tag | quote }}
      {{- if ne $destination.type "kafka" }}
      parser: segment
      {{- end }}
      db: /var/log/inference-logging/fluent-bit.db
      db.compare_filename: true
      read_from_head: true
      refresh_interval: 1
      buffer_chunk_size: 32k
      buffer_max_size: {{ include "inference-logging.longestLineBytes" . | int64 }}
      skip_long_lines: on
      storage.type: filesystem
      storage.pause_on_chunks_overlimit: on
  {{- if eq $destination.type "elasticsearch" }}
  filters:
    # An index cannot have a text where it has the size below the same name.
    - name: modify
      match: "*"
      rename: http.request.body http.request.body.text
  {{- end }}
  outputs:
    - name: {{ include "inference-logging.fluentBitOutput" . }}
      match: "*"
      retry_limit: no_limits
      {{- include (printf "inference-logging.output.%s" $destination.type) . | nindent 6 }}
{{- end }}

{{/*
The name of the output. Of two for indexes, es counts a request as delivered once one record of it is; opensearch sends it
again until all of it is there, and has no API keys.
*/}}
{{- define "inference-logging.fluentBitOutput" -}}
{{- $type := .Values.destination.type }}
{{- $indexes := ternary "es" "opensearch" (not (empty .Values.destination.keys.token)) }}
{{- get (dict "otlp" "opentelemetry" "elasticsearch" $indexes) $type | default $type }}
{{- end }}

{{/* host, port and TLS of the outputs that have them. */}}
{{- define "inference-logging.output.address" -}}
{{- $endpoint := include "inference-logging.endpoint" . | fromYaml }}
host: {{ $endpoint.host | quote }}
port: {{ int64 $endpoint.port }}
{{- if $endpoint.tls }}
tls: on
tls.verify: on
{{- with include "inference-logging.tlsFiles" . | fromYaml }}
{{- with .ca }}
tls.ca_file: {{ . }}
{{- end }}
{{- with .cert }}
tls.crt_file: {{ . }}
{{- end }}
{{- with .key }}
tls.key_file: {{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "inference-logging.output.credentials" -}}
{{- if .Values.destination.keys.username }}
http_user: ${DESTINATION_USERNAME}
http_passwd: ${DESTINATION_PASSWORD}
{{- end }}
{{- end }}

{{- define "inference-logging.output.forward" -}}
{{ include "inference-logging.output.address" . | trim }}
require_ack_response: true
{{- with .Values.destination.keys }}
{{- if .sharedKey }}
shared_key: ${DESTINATION_SHARED_KEY}
self_hostname: ${POD_NAME}
{{- end }}
{{- if .username }}
username: ${DESTINATION_USERNAME}
password: ${DESTINATION_PASSWORD}
{{- end }}
{{- end }}
{{- end }}

{{- define "inference-logging.output.otlp" -}}
{{- $path := (include "inference-logging.endpoint" . | fromYaml).path }}
{{ include "inference-logging.output.address" . | trim }}
logs_uri: {{ printf "%s/v1/logs" $path }}
{{- include "inference-logging.output.credentials" . }}
{{- if .Values.destination.keys.token }}
header:
  - Authorization Bearer ${DESTINATION_TOKEN}
{{- end }}
{{- end }}

{{- define "inference-logging.output.loki" -}}
{{- $config := include "inference-logging.config" . | fromYaml }}
{{- $destination := .Values.destination }}
{{ include "inference-logging.output.address" . | trim }}
uri: {{ printf "%s/loki/api/v1/push" (include "inference-logging.endpoint" . | fromYaml).path }}
labels: {{ include "inference-logging.lokiLabels" . | fromYaml | toJson | replace "\"" "" | trimPrefix "{" | trimSuffix "}" | replace ":" "=" | quote }}
line_format: json
{{- with $destination.tenant }}
tenant_id: {{ . | quote }}
{{- end }}
{{- include "inference-logging.output.credentials" . }}
{{- if $destination.keys.token }}
bearer_token: ${DESTINATION_TOKEN}
{{- end }}
{{- end }}

{{/* The labels of streams in Loki: few, and none that a request decides. */}}
{{- define "inference-logging.lokiLabels" -}}
{{- $config := include "inference-logging.config" . | fromYaml }}
service_name: {{ $config.service_name | default (include "inference-logging.default" (list . "service_name")) | quote }}
pod: ${POD_NAME}
{{- with .Values.destination.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "inference-logging.output.elasticsearch" -}}
{{- $destination := .Values.destination }}
{{ include "inference-logging.output.address" . | trim }}
{{- with (include "inference-logging.endpoint" . | fromYaml).path }}
path: {{ . }}
{{- end }}
index: {{ $destination.index | quote }}
suppress_type_name: on
{{- if eq (include "inference-logging.fluentBitOutput" .) "opensearch" }}
# By what is in it, so that a record which is sent again is there once.
generate_id: on
{{- end }}
{{- include "inference-logging.output.credentials" . }}
{{- if $destination.keys.token }}
http_api_key: ${DESTINATION_TOKEN}
{{- end }}
{{- end }}

{{- define "inference-logging.output.kafka" -}}
{{- $destination := .Values.destination }}
{{- $user := not (empty $destination.keys.username) }}
brokers: {{ join "," $destination.endpoints | quote }}
topics: {{ $destination.topic | quote }}
format: raw
raw_log_key: log
rdkafka.request.required.acks: "-1"
rdkafka.enable.idempotence: "true"
{{- if or $user $destination.tls.enabled }}
rdkafka.security.protocol: {{ printf "%s%s" (ternary "sasl_" "" $user) (ternary "ssl" "plaintext" $destination.tls.enabled) }}
{{- end }}
{{- if $user }}
rdkafka.sasl.mechanism: {{ $destination.mechanism | quote }}
rdkafka.sasl.username: ${DESTINATION_USERNAME}
rdkafka.sasl.password: ${DESTINATION_PASSWORD}
{{- end }}
{{- with include "inference-logging.tlsFiles" . | fromYaml }}
{{- with .ca }}
rdkafka.ssl.ca.location: {{ . }}
{{- end }}
{{- with .cert }}
rdkafka.ssl.certificate.location: {{ . }}
{{- end }}
{{- with .key }}
rdkafka.ssl.key.location: {{ . }}
{{- end }}
{{- end }}
{{- end }}
