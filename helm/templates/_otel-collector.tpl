{{/*
The OpenTelemetry Collector: follows segments, with its offsets beside them. What is read waits for the destination in a
queue on the volume, so a line counts as read when it is there; while the queue is full, the collector waits.
*/}}
{{- define "inference-logging.config.otel-collector" -}}
{{- $config := include "inference-logging.config" . | fromYaml }}
{{- $shipper := include "inference-logging.shipper" . | fromYaml }}
{{- $destination := .Values.destination }}
{{- $exporter := get (dict "otlp" "otlp_http" "loki" "otlp_http" "kafka" "kafka" "elasticsearch" "elasticsearch") $destination.type }}
{{- $basic := and $destination.keys.username (eq $exporter "otlp_http") }}
extensions:
  file_storage:
    directory: /var/log/inference-logging/otel-collector
    create_directory: true
    timeout: 10s
  {{- if $basic }}
  basicauth/destination:
    client_auth: { username: "${env:DESTINATION_USERNAME}", password: "${env:DESTINATION_PASSWORD}" }
  {{- end }}
receivers:
  file_log:
    include: {{ include "inference-logging.segmentFiles" . | fromYamlArray | toJson }}
    start_at: beginning
    storage: file_storage
    max_log_size: {{ include "inference-logging.longestLineBytes" . | int64 }}
    include_file_name: false
    {{- if eq .Values.mode "node" }}
    include_file_path: true
    {{- end }}
    # A line whose end is not there yet is none.
    force_flush_period: 0s
    retry_on_failure: { enabled: true, max_elapsed_time: 0s }
    {{- if ne .Values.mode "node" }}
    resource:
      service.name: {{ $config.service_name | default (include "inference-logging.default" (list . "service_name")) | quote }}
      k8s.namespace.name: {{ .Release.Namespace | quote }}
      k8s.pod.name: ${env:POD_NAME}
    {{- end }}
    operators:
      {{- if eq .Values.mode "node" }}
      # Of which pod and service a line is, its file's path says.
      - type: regex_parser
        parse_from: attributes["log.file.path"]
        parse_to: attributes.place
        regex: '^.*/(?P<namespace>[^/]+)/(?P<pod>[^/]+)/(?:audit/)?(?P<service>[^/]+)-[^-/]+-[^-/]+-[^-/]+$'
      - { type: move, from: attributes.place.namespace, to: 'resource["k8s.namespace.name"]' }
      - { type: move, from: attributes.place.pod, to: 'resource["k8s.pod.name"]' }
      - { type: move, from: attributes.place.service, to: 'resource["service.name"]' }
      - { type: remove, field: attributes.place }
      - { type: remove, field: 'attributes["log.file.path"]' }
      {{- end }}
      # Their own lines are no records, and have no severity to parse.
      - { type: filter, expr: 'body matches "^[{]\"timestamp\":\"[^\"]*\",\"event_name\":\"segment[.](header|footer)\""' }
      {{- $fields := ternary "body" "attributes" (eq $destination.type "kafka") }}
      - type: json_parser
        parse_to: {{ $fields }}
        parse_ints: true
        timestamp: { parse_from: {{ $fields }}.timestamp, layout_type: gotime, layout: "2006-01-02T15:04:05.999999999Z07:00" }
        severity: { parse_from: {{ $fields }}.severity_text }
        trace:
          trace_id: { parse_from: {{ $fields }}.trace_id }
          span_id: { parse_from: {{ $fields }}.span_id }
          trace_flags: { parse_from: {{ $fields }}.trace_flags }
      {{- if eq $destination.type "loki" }}
      # The line itself is what arrives.
      - { type: retain, fields: [body, attributes.event_name] }
      {{- else if ne $destination.type "kafka" }}
      # The fields are what arrives, and the message, where there is one, as the body.
      - { type: add, field: body, value: "EXPR(attributes.message ?? attributes.event_name)" }
      {{- end }}
processors:
  memory_limiter: { check_interval: 1s, limit_percentage: 80, spike_limit_percentage: 20 }
exporters:
  {{ $exporter }}:
    {{- include (printf "inference-logging.exporter.%s" $exporter) . | nindent 4 }}
    {{- if ne $exporter "elasticsearch" }}
    timeout: 30s
    # On the volume, since retries that a shutdown ends are not read from the segments again.
    sending_queue: { enabled: true, storage: file_storage, block_on_overflow: true, sizer: bytes, queue_size: 67108864 }
    retry_on_failure: { enabled: true, initial_interval: 1s, max_interval: 30s, max_elapsed_time: 0s }
    {{- end }}
    {{- with include "inference-logging.tlsFiles" . | fromYaml }}
    tls:
      {{- with .ca }}
      ca_file: {{ . }}
      {{- end }}
      {{- with .cert }}
      cert_file: {{ . }}
      {{- end }}
      {{- with .key }}
      key_file: {{ . }}
      {{- end }}
    {{- else }}
    {{- if $destination.tls.enabled }}
    tls: { insecure: false }
    {{- end }}
    {{- end }}
service:
  extensions: [file_storage{{ if $basic }}, basicauth/destination{{ end }}]
  telemetry:
    metrics:
      readers:
        - pull: { exporter: { prometheus: { host: 0.0.0.0, port: {{ int64 $shipper.port }} } } }
  pipelines:
    logs: { receivers: [file_log], processors: [memory_limiter], exporters: [{{ $exporter }}] }
{{- end }}

{{- define "inference-logging.exporter.otlp_http" -}}
{{- $destination := .Values.destination }}
{{- $url := first $destination.endpoints | default "" | trimSuffix "/" }}
endpoint: {{ ternary (printf "%s/otlp" $url) $url (eq $destination.type "loki") | quote }}
{{- with $destination.keys }}
{{- if .username }}
auth: { authenticator: basicauth/destination }
{{- end }}
{{- if or .token $destination.tenant }}
headers:
  {{- if .token }}
  Authorization: Bearer ${env:DESTINATION_TOKEN}
  {{- end }}
  {{- with $destination.tenant }}
  X-Scope-OrgID: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "inference-logging.exporter.kafka" -}}
{{- $destination := .Values.destination }}
brokers: {{ toJson $destination.endpoints }}
logs: { topic: {{ $destination.topic | quote }}, encoding: raw }
producer: { required_acks: -1, max_message_bytes: {{ include "inference-logging.longestLineBytes" . | int64 }} }
{{- if $destination.keys.username }}
auth:
  sasl:
    username: ${env:DESTINATION_USERNAME}
    password: ${env:DESTINATION_PASSWORD}
    mechanism: {{ $destination.mechanism | quote }}
{{- end }}
{{- end }}

{{/* It collects documents in memory whatever is set, so a queue on the volume has them until they are delivered. */}}
{{- define "inference-logging.exporter.elasticsearch" -}}
{{- $destination := .Values.destination }}
endpoints: {{ toJson $destination.endpoints }}
logs_index: {{ $destination.index | quote }}
{{- with $destination.keys }}
{{- if .username }}
user: ${env:DESTINATION_USERNAME}
password: ${env:DESTINATION_PASSWORD}
{{- end }}
{{- if .token }}
api_key: ${env:DESTINATION_TOKEN}
{{- end }}
{{- end }}
sending_queue: { enabled: true, storage: file_storage, block_on_overflow: true }
retry: { enabled: true, max_retries: 1000000, initial_interval: 1s, max_interval: 30s }
{{- end }}
