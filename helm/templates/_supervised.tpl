{{/*
A listener or shipper starts again within its container, whose first process is `supervise`: a container that ends makes its
pod unready, for up to five minutes, and takes a healthy server out of its Service.
*/}}

{{/* Where that process shows how often it was: of `listener` or `shipper`. */}}
{{- define "inference-logging.upPort" -}}
{{- ternary 9466 9467 (eq . "listener") }}
{{- end }}

{{/* Command and first arguments; those of the child follow: {program, of, memory, options}. */}}
{{- define "inference-logging.supervised" -}}
command: [{{ .program }}, supervise]
args:
  - --metrics-port={{ include "inference-logging.upPort" .of }}
  {{- with .memory }}
  # Below the limit, at which the kernel ends the whole container.
  - --memory-bytes={{ div (mul 9 (include "inference-logging.bytes" . | int64)) 10 }}
  {{- end }}
  {{- range .options }}
  - {{ . }}
  {{- end }}
  - --
{{- end }}

{{/* Of a listener: (list root program). One that hangs is replaced, and leaves the shipper its time at the end. */}}
{{- define "inference-logging.supervisedListener" -}}
{{- $root := index . 0 }}
{{- $drain := include "inference-logging.parameter" (list $root "drain_deadline_s") | float64 | ceil | int64 }}
{{- $options := list (printf "--live-port=%d" (int64 $root.Values.listener.port)) (printf "--kill-after=%d" (add 5 $drain)) }}
{{- $memory := ($root.Values.listener.resources.limits | default dict).memory }}
{{- include "inference-logging.supervised" (dict "program" (index . 1) "of" "listener" "memory" $memory "options" $options) }}
{{- end }}

{{/* Of a shipper: . Those of others stop reading at their signal to end, so it comes later. */}}
{{- define "inference-logging.supervisedShipper" -}}
{{- $root := . }}
{{- $foreign := eq (include "inference-logging.isForeign" $root) "true" }}
{{- $program := ternary "/opt/inference-logging/inference-logging-listener" "inference-logging-listener" $foreign }}
{{- $options := ternary (list (printf "--delay=%d" (int64 $root.Values.shipper.flushSeconds))) (list) $foreign }}
{{- $memory := ($root.Values.shipper.resources.limits | default dict).memory }}
{{- include "inference-logging.supervised" (dict "program" $program "of" "shipper" "memory" $memory "options" $options) }}
{{- end }}

{{/* Gives the container of a shipper that others made the program which is its parent. */}}
{{- define "inference-logging.container.install" -}}
name: install
image: {{ include "inference-logging.image" (list .Values.listener.image .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
command: [/inference-logging-listener, install, /opt/inference-logging]
resources:
  requests: { cpu: 1m, memory: 4Mi }
  limits: { memory: 64Mi }
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - { name: program, mountPath: /opt/inference-logging }
{{- end }}
