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
{{- end }}

{{/* The listener, as an init container that is restarted always: it starts before the server, and ends after it. */}}
{{- define "inference-logging-library.listener" -}}
{{- $image := printf "%s:%s" .image.repository .image.tag }}
{{- with .image.digest }}{{ $image = printf "%s@%s" $.image.repository . }}{{ end -}}
name: listener
image: {{ quote $image }}
imagePullPolicy: {{ .image.pullPolicy }}
restartPolicy: Always
command: [/inference-logging-listener, listen]
args:
  - --metrics-port={{ int64 .port }}
  - --status-interval-s={{ .statusIntervalSeconds }}
ports:
  - { name: metrics, containerPort: {{ int64 .port }} }
env:
  {{- include "inference-logging-library.shared" . | nindent 2 }}
startupProbe:
  httpGet: { path: /live, port: metrics }
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /live, port: metrics }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
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
