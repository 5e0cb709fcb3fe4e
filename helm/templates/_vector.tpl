{{/*
Vector: follows segments, with its checkpoints on their volume, which move when the destination has acknowledged. Files
are known by their first line, whose time, boot id and number no other segment has.
*/}}
{{- define "inference-logging.config.vector" -}}
{{- $shipper := include "inference-logging.shipper" . | fromYaml }}
{{- $destination := .Values.destination }}
{{- $parsed := ne $destination.type "kafka" }}
data_dir: /var/log/inference-logging
sources:
  segments:
    type: file
    include: {{ include "inference-logging.segmentFiles" . | fromYamlArray | toJson }}
    read_from: beginning
    fingerprint: { strategy: checksum, lines: 1 }
    max_line_bytes: {{ include "inference-logging.longestLineBytes" . | int64 }}
    glob_minimum_cooldown_ms: 1000
  own: { type: internal_metrics }
{{- if $parsed }}
transforms:
  records:
    type: remap
    inputs: [segments]
    source: |
      record, wrong = parse_json(string!(.message))
      if wrong == null {
        time, wrong = parse_timestamp(string!(record.timestamp), format: "%+")
        if wrong == null { .timestamp = time }
        {{- if eq $destination.type "elasticsearch" }}
        . = object!(record)
        ."@timestamp" = .timestamp
        {{- end }}
      }
{{- end }}
sinks:
  own: { type: prometheus_exporter, inputs: [own], address: "0.0.0.0:{{ int64 $shipper.port }}" }
  destination:
    type: {{ $destination.type }}
    inputs: [{{ ternary "records" "segments" $parsed }}]
    acknowledgements: { enabled: true }
    {{- include (printf "inference-logging.sink.%s" $destination.type) . | nindent 4 }}
    {{- $files := include "inference-logging.tlsFiles" . | fromYaml }}
    {{- if or $files $destination.tls.enabled }}
    tls:
      {{- if eq $destination.type "kafka" }}
      enabled: {{ $destination.tls.enabled }}
      {{- end }}
      {{- with $files.ca }}
      ca_file: {{ . }}
      {{- end }}
      {{- with $files.cert }}
      crt_file: {{ . }}
      {{- end }}
      {{- with $files.key }}
      key_file: {{ . }}
      {{- end }}
    {{- end }}
{{- end }}

{{- define "inference-logging.sink.kafka" -}}
{{- $destination := .Values.destination }}
bootstrap_servers: {{ join "," $destination.endpoints | quote }}
topic: {{ $destination.topic | quote }}
encoding: { codec: text }
# 0: a message is tried until it is delivered.
message_timeout_ms: 0
librdkafka_options: { request.required.acks: "all", enable.idempotence: "true" }
{{- if $destination.keys.username }}
sasl:
  enabled: true
  mechanism: {{ $destination.mechanism | quote }}
  username: ${DESTINATION_USERNAME}
  password: ${DESTINATION_PASSWORD}
{{- end }}
{{- end }}

{{- define "inference-logging.sink.loki" -}}
{{- $destination := .Values.destination }}
endpoint: {{ first $destination.endpoints | default "" | quote }}
encoding: { codec: text }
labels:
  {{- include "inference-logging.lokiLabels" . | trim | nindent 2 }}
{{- with $destination.tenant }}
tenant_id: {{ . | quote }}
{{- end }}
{{- include "inference-logging.sink.credentials" . }}
{{- end }}

{{- define "inference-logging.sink.elasticsearch" -}}
{{- $destination := .Values.destination }}
endpoints: {{ toJson $destination.endpoints }}
mode: bulk
bulk: { action: create, index: {{ $destination.index | quote }} }
{{- if $destination.keys.token }}
request: { headers: { Authorization: "ApiKey ${DESTINATION_TOKEN}" } }
{{- else }}
{{- include "inference-logging.sink.credentials" . }}
{{- end }}
{{- end }}

{{- define "inference-logging.sink.credentials" -}}
{{- with .Values.destination.keys }}
{{- if .username }}
auth: { strategy: basic, user: "${DESTINATION_USERNAME}", password: "${DESTINATION_PASSWORD}" }
{{- else if .token }}
auth: { strategy: bearer, token: "${DESTINATION_TOKEN}" }
{{- end }}
{{- end }}
{{- end }}
