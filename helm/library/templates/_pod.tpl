{{/*
What a pod has that writes records, as the chart inference-logging's own pods have it. Each takes the values of this
chart: {{ include "inference-logging-library.env" .Values.inferenceLogging }}.
*/}}

{{- define "inference-logging-library.volumes" -}}
- name: inference-logging-queue
  emptyDir: { medium: Memory, sizeLimit: {{ .queue.sizeLimit }} }
- name: inference-logging-segments
  emptyDir: { sizeLimit: {{ .segments.size }} }
{{- end }}

{{/* Of the server's container, and of each other one that writes records. */}}
{{- define "inference-logging-library.volumeMounts" -}}
- { name: inference-logging-queue, mountPath: /run/inference-logging }
- { name: inference-logging-segments, mountPath: /var/log/inference-logging }
{{- end }}

{{/* Of the server's container. */}}
{{- define "inference-logging-library.env" -}}
{{ include "inference-logging-library.shared" . }}
- { name: INFERENCE_LOGGING_LISTENER, value: external }
- { name: INFERENCE_LOGGING_OPEN_FAILURE, value: serve }
{{- end }}

{{/* The listener, as an init container that is restarted always: it starts before the server, and ends after it. */}}
{{- define "inference-logging-library.listener" -}}
{{- if not (and .image.repository (or .image.tag .image.digest)) }}
{{- fail (printf "image.repository=%q, image.tag=%q: must be given, the tag or image.digest" .image.repository .image.tag) }}
{{- end }}
{{- $image := printf "%s:%s" .image.repository .image.tag }}
{{- with .image.digest }}{{ $image = printf "%s@%s" $.image.repository . }}{{ end -}}
name: listener
image: {{ quote $image }}
imagePullPolicy: {{ .image.pullPolicy }}
restartPolicy: Always
{{- $config := mergeOverwrite (include "inference-logging-library.defaults" . | fromYaml) (deepCopy .config) }}
{{- /* It starts the listener again when that ends or hangs, so that the pod stays ready. */}}
command: [/inference-logging-listener, supervise]
args:
  - --metrics-port={{ add .port 2 }}
  {{- with (.resources.limits | default dict).memory }}
  - --memory-bytes={{ div (mul 9 (include "inference-logging-library.bytes" . | int64)) 10 }}
  {{- end }}
  - --live-port={{ int64 .port }}
  - --kill-after={{ $config.drain_deadline_s | float64 | ceil | int64 | add 5 }}
  - --
  - /inference-logging-listener
  - listen
  - --metrics-port={{ int64 .port }}
  - --status-interval-s={{ .statusIntervalSeconds }}
ports:
  - { name: metrics, containerPort: {{ int64 .port }} }
  - { name: up-metrics, containerPort: {{ add .port 2 }} }
env:
  {{- include "inference-logging-library.shared" . | nindent 2 }}
startupProbe:
  httpGet: { path: /live, port: metrics }
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 60
resources:
  {{- toYaml .resources | nindent 2 }}
securityContext:
  {{- toYaml .securityContext | nindent 2 }}
volumeMounts:
  {{- include "inference-logging-library.volumeMounts" . | nindent 2 }}
{{- end }}

{{/* What server and listener must agree on. */}}
{{- define "inference-logging-library.shared" -}}
- name: POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- name: POD_UID
  valueFrom: { fieldRef: { fieldPath: metadata.uid } }
- name: POD_NAMESPACE
  valueFrom: { fieldRef: { fieldPath: metadata.namespace } }
- name: NODE_NAME
  valueFrom: { fieldRef: { fieldPath: spec.nodeName } }
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.pod.name=$(POD_NAME),k8s.pod.uid=$(POD_UID),k8s.namespace.name=$(POD_NAMESPACE),k8s.node.name=$(NODE_NAME)
{{- $config := dict }}
{{- range $name, $value := .config }}
{{- if has $name (list "directory" "queue_directory" "listener") }}
{{- fail (printf "config.%s=%s: the chart sets it" $name (toJson $value)) }}
{{- end }}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $config $name $value }}{{ end }}
{{- end }}
{{- include "inference-logging-library.checks" (dict "config" $config "queue" .queue "segments" .segments) }}
{{- if not (hasKey $config "quota_bytes") }}
{{- $_ := set $config "quota_bytes" (div (mul (include "inference-logging-library.bytes" .segments.size | int64) 8) 10) }}
{{- end }}
{{- $_ := set $config "queue_directory" "/run/inference-logging/queues" }}
{{- $_ := set $config "directory" "/var/log/inference-logging/segments" }}
{{- range $name, $value := $config }}
- { name: INFERENCE_LOGGING_{{ upper $name }}, value: {{ include "inference-logging-library.text" $value | quote }} }
{{- end }}
{{- end }}

{{/* A value as its variable has it: helm reads numbers as floating point. */}}
{{- define "inference-logging-library.text" -}}
{{- if kindIs "slice" . }}
{{- toJson . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}
{{- int64 . }}
{{- else }}
{{- . }}
{{- end }}
{{- end }}

{{/* What no schema can say: a pod that has too little room for what it writes, which takes its server along. */}}
{{- define "inference-logging-library.checks" -}}
{{- $config := mergeOverwrite (include "inference-logging-library.defaults" . | fromYaml) .config }}
{{- $size := include "inference-logging-library.bytes" .segments.size | int64 }}
{{- $quota := div (mul $size 8) 10 }}
{{- if hasKey .config "quota_bytes" }}
{{- $quota = include "inference-logging-library.bytes" .config.quota_bytes | int64 }}
{{- if or (le $quota 0) (gt $quota $size) }}
{{- fail (printf "config.quota_bytes=%s: must be above 0 and at most segments.size=%s, since a pod above that is evicted" (include "inference-logging-library.text" .config.quota_bytes) .segments.size) }}
{{- end }}
{{- end }}
{{- $least := mul 2 (include "inference-logging-library.bytes" $config.rotate_bytes | int64) }}
{{- if lt $quota $least }}
{{- fail (printf "segments.size=%s: leaves segments %d bytes, but two of config.rotate_bytes take %d" .segments.size $quota $least) }}
{{- end }}
{{- $slots := div (add (mul (include "inference-logging-library.bytes" $config.in_flight_slots | int64) 2048) 4095) 4096 }}
{{- $queue := add 65536 (mul 4096 $slots) (include "inference-logging-library.ringBytes" $config.queue_bytes | int64) }}
{{- if eq (toString $config.audit) "on" }}
{{- $queue = add $queue 65536 (include "inference-logging-library.ringBytes" $config.audit_queue_bytes | int64) }}
{{- end }}
{{- $needed := div (add (mul 2 (add $queue 1048576)) 1048575) 1048576 }}
{{- if lt (include "inference-logging-library.bytes" .queue.sizeLimit | int64) (mul $needed 1048576) }}
{{- fail (printf "queue.sizeLimit=%s: must be at least %dMi, twice what the queue of one process takes with config.queue_bytes=%s" .queue.sizeLimit $needed (include "inference-logging-library.text" $config.queue_bytes)) }}
{{- end }}
{{- end }}

{{/* Of a number, or of a text such as 64MiB or 2Gi. */}}
{{- define "inference-logging-library.bytes" -}}
{{- if or (kindIs "float64" .) (kindIs "int64" .) (kindIs "int" .) }}
{{- int64 . }}
{{- else }}
{{- $text := . | toString | trim | upper | trimSuffix "B" | trim }}
{{- $unit := regexFind "[A-Z]*$" $text }}
{{- $factors := dict "" 1 "K" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "KI" 1024 "MI" 1048576 "GI" 1073741824 "TI" 1099511627776 }}
{{- mul (trimSuffix $unit $text | trim | float64 | int64) (get $factors $unit | int64) }}
{{- end }}
{{- end }}

{{- define "inference-logging-library.ringBytes" -}}
{{- $bytes := include "inference-logging-library.bytes" . | int64 }}
{{- $ring := 65536 }}
{{- range until 40 }}
{{- if lt $ring $bytes }}{{ $ring = mul $ring 2 }}{{ end }}
{{- end }}
{{- $ring }}
{{- end }}
