{{/*
Where our metrics are: {name, port, path} of the listener, or of the server that listens itself and whose middleware has a
route for them. Nothing for a Triton that listens in one of its stubs.
*/}}
{{- define "inference-logging.metrics" -}}
{{- $config := include "inference-logging.config" . | fromYaml }}
{{- if eq (include "inference-logging.hasListener" .) "true" }}
name: metrics
path: /metrics
{{- else if and $config.metrics_path (ne .Values.preset "triton") }}
name: http
path: {{ $config.metrics_path | quote }}
{{- else }}
{}
{{- end }}
{{- end }}

{{/*
What is scraped of a pod. All endpoints get the label `service`, by which the dashboard chooses;
for a ServiceMonitor the operator adds it.
*/}}
{{- define "inference-logging.scraped" -}}
{{- $each := dict "interval" .Values.monitor.interval }}
{{- if eq .Values.monitor.kind "PodMonitor" }}
{{- $service := dict "targetLabel" "service" "replacement" (include "inference-logging.fullname" .) }}
{{- $_ := set $each "relabelings" (list $service) }}
{{- end }}
{{- with include "inference-logging.metrics" . | fromYaml }}
- port: {{ .name }}
  path: {{ .path }}
  {{- toYaml $each | nindent 2 }}
  {{- if eq $.Values.mode "node" }}
  # What is said of a pod's queues is the pod's: its namespace and its name stand in the name of the directory.
  metricRelabelings:
    - { sourceLabels: [directory], regex: "([^/]+)/([^/]+)", targetLabel: namespace, replacement: $1 }
    - { sourceLabels: [directory], regex: "([^/]+)/([^/]+)", targetLabel: pod, replacement: $2 }
  {{- end }}
{{- end }}
{{- if ne $.Values.shipper.type "none" }}
- port: ship-metrics
  path: {{ (include "inference-logging.shipper" . | fromYaml).metricsPath }}
  {{- toYaml $each | nindent 2 }}
- port: ship-up-metrics
  path: /metrics
  {{- toYaml $each | nindent 2 }}
{{- end }}
{{- if eq (include "inference-logging.hasListener" .) "true" }}
- port: up-metrics
  path: /metrics
  {{- toYaml $each | nindent 2 }}
{{- end }}
{{- with .Values.monitor.serverPath }}
- port: {{ ternary "triton-metrics" "http" (eq $.Values.preset "triton") }}
  path: {{ . }}
  {{- toYaml $each | nindent 2 }}
{{- end }}
{{- end }}

{{- define "inference-logging.hasListener" -}}
{{- or (eq .Values.mode "node") (eq .Values.listener.mode "sidecar") }}
{{- end }}

{{/* The ports of the Service, and what they lead to. */}}
{{- define "inference-logging.servicePorts" -}}
{{- $server := include "inference-logging.server" . | fromYaml }}
{{- if eq .Values.mode "server" }}
- name: http
  port: {{ int64 .Values.service.port }}
  targetPort: {{ int64 $server.port }}
{{- range $server.extraPorts }}
- name: {{ .name }}
  port: {{ int64 .port }}
  targetPort: {{ int64 .port }}
{{- end }}
{{- end }}
{{- /* By number: a name would be looked for in the server's container. */}}
{{- if eq (include "inference-logging.hasListener" .) "true" }}
{{- range $name, $port := dict "metrics" .Values.listener.port "up-metrics" (include "inference-logging.upPort" "listener") }}
- name: {{ $name }}
  port: {{ int64 $port }}
  targetPort: {{ int64 $port }}
{{- end }}
{{- end }}
{{- if ne .Values.shipper.type "none" }}
{{- $port := (include "inference-logging.shipper" . | fromYaml).port }}
{{- range $name, $port := dict "ship-metrics" $port "ship-up-metrics" (include "inference-logging.upPort" "shipper") }}
- name: {{ $name }}
  port: {{ int64 $port }}
  targetPort: {{ int64 $port }}
{{- end }}
{{- end }}
{{- end }}

{{/* The ports of all endpoints of the destination, each once. */}}
{{- define "inference-logging.destinationPorts" -}}
{{- $ports := list }}
{{- range .Values.destination.endpoints }}
{{- $one := set (deepCopy $.Values) "destination" (set (deepCopy $.Values.destination) "endpoints" (list .)) }}
{{- $ports = append $ports (include "inference-logging.endpoint" (dict "Values" $one) | fromYaml).port }}
{{- end }}
{{- toYaml ($ports | uniq) }}
{{- end }}
