{{/* The containers of a pod. */}}

{{- define "inference-logging.container.server" -}}
{{- $server := include "inference-logging.server" . | fromYaml }}
{{- $command := include (printf "inference-logging.command.%s" .Values.preset) (list . $server) | fromYaml }}
name: server
image: {{ include "inference-logging.image" (list $server.image "") | quote }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
{{- with $server.command | default $command.command }}
command:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $args := $server.args | default (ternary (list) ($command.args | default list) (not (empty $server.command))) }}
{{- with concat $args ($server.extraArgs | default list) }}
args:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - { name: http, containerPort: {{ int64 $server.port }} }
  {{- range $server.extraPorts }}
  - { name: {{ .name }}, containerPort: {{ int64 .port }} }
  {{- end }}
env:
  {{- include "inference-logging.env" . | nindent 2 }}
  {{- if ne .Values.listener.mode "inProcess" }}
  - { name: INFERENCE_LOGGING_LISTENER, value: external }
  {{- end }}
  - { name: HOME, value: {{ $server.cache.mountPath | quote }} }
  - { name: XDG_CACHE_HOME, value: {{ $server.cache.mountPath | quote }} }
  {{- /* Python looks the user up by name, and the user of a pod need not be in /etc/passwd. */}}
  - { name: USER, value: inference }
  {{- with .Values.server.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.server.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $server.probes }}
{{ toYaml . }}
{{- end }}
lifecycle:
  {{- toYaml (.Values.server.lifecycle | default (dict "preStop" (dict "sleep" (dict "seconds" (int64 $server.preStopSleepSeconds))))) | nindent 2 }}
{{- with include "inference-logging.resources" $server | fromYaml }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  {{- include "inference-logging.mounts" . | nindent 2 }}
  - { name: tmp, mountPath: /tmp }
  - { name: cache, mountPath: {{ $server.cache.mountPath | quote }} }
  {{- if include "inference-logging.shmSize" $server }}
  - { name: shm, mountPath: /dev/shm }
  {{- end }}
  {{- with .Values.server.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Resources with the GPUs: they are given as a limit, and asked for as such. */}}
{{- define "inference-logging.resources" -}}
{{- $resources := deepCopy .resources }}
{{- if gt (int64 .gpu.count) 0 }}
{{- $limits := $resources.limits | default dict }}
{{- $_ := set $limits .gpu.resource (int64 .gpu.count) }}
{{- $_ := set $resources "limits" $limits }}
{{- end }}
{{- toYaml $resources }}
{{- end }}

{{/*
One pod more while updating. Not where a volume can be mounted once, nor with GPUs: the pod more would wait for one that is
free, for ever on a full cluster.
*/}}
{{- define "inference-logging.strategy" -}}
{{- $server := include "inference-logging.server" . | fromYaml }}
{{- if and .Values.storage.segments.persistence.enabled (ne (include "inference-logging.isShared" .) "true") }}
type: Recreate
{{- else if gt (int64 $server.gpu.count) 0 }}
type: RollingUpdate
rollingUpdate: { maxSurge: 0, maxUnavailable: 1 }
{{- else }}
type: RollingUpdate
rollingUpdate: { maxSurge: 1, maxUnavailable: 0 }
{{- end }}
{{- end }}

{{- define "inference-logging.shmSize" -}}
{{- $size := (.shm | default dict).sizeLimit | default "0" }}
{{- if ne (toString $size) "0" }}{{ $size }}{{ end }}
{{- end }}

{{/*
An init container that is restarted always: it starts before the server, and gets its signal to end when the server has ended, so
it drains what that left.
*/}}
{{- define "inference-logging.container.listener" -}}
{{- $image := .Values.listener.image }}
{{- $isDatabase := eq (include "inference-logging.hasAuditDatabase" .) "true" }}
{{- if $isDatabase }}{{ $image = .Values.image }}{{ end -}}
name: listener
image: {{ include "inference-logging.image" (list $image .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
restartPolicy: Always
{{- $program := ternary "inference-logging-listener" "/inference-logging-listener" $isDatabase }}
{{ include "inference-logging.supervisedListener" (list . $program) }}
  - {{ ternary "inference-logging" $program $isDatabase }}
  - listen
  - --metrics-port={{ int64 .Values.listener.port }}
  - --status-interval-s={{ .Values.listener.statusIntervalSeconds }}
ports:
  - { name: metrics, containerPort: {{ int64 .Values.listener.port }} }
  - { name: up-metrics, containerPort: {{ include "inference-logging.upPort" "listener" }} }
env:
  {{- include "inference-logging.env" . | nindent 2 }}
  {{- with .Values.listener.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{ include "inference-logging.listenerProbes" . }}
resources:
  {{- toYaml .Values.listener.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  {{- include "inference-logging.mounts" . | nindent 2 }}
  {{- with .Values.listener.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Whether the audit lane has a database, which Python writes. */}}
{{- define "inference-logging.hasAuditDatabase" -}}
{{- $isOn := eq (include "inference-logging.parameter" (list . "audit")) "on" }}
{{- and $isOn (eq (include "inference-logging.parameter" (list . "audit_sink")) "sqlite") }}
{{- end }}

{{/* What the containers with our package share. */}}
{{- define "inference-logging.env" -}}
- name: POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- name: POD_UID
  valueFrom: { fieldRef: { fieldPath: metadata.uid } }
- name: POD_NAMESPACE
  valueFrom: { fieldRef: { fieldPath: metadata.namespace } }
- name: NODE_NAME
  valueFrom: { fieldRef: { fieldPath: spec.nodeName } }
- { name: OTEL_RESOURCE_ATTRIBUTES, value: {{ include "inference-logging.resourceAttributes" . | quote }} }
- { name: INFERENCE_LOGGING_CONFIG_FILE, value: /etc/inference-logging/logging.yaml }
{{- end }}

{{/* Which pod wrote a record: Kubernetes fills in what the references name. config.resource goes before it. */}}
{{- define "inference-logging.resourceAttributes" -}}
{{- $server := include "inference-logging.server" . | fromYaml }}
{{- $known := list "k8s.pod.name=$(POD_NAME)" "k8s.pod.uid=$(POD_UID)" "k8s.namespace.name=$(POD_NAMESPACE)" "k8s.node.name=$(NODE_NAME)" }}
{{- with regexReplaceAll "@?sha256:.*$" (include "inference-logging.tag" ($server.image.tag | default "")) "" }}
{{- $known = append $known (printf "service.version=%s" (urlquery .)) }}
{{- end }}
{{- join "," $known }}
{{- end }}

{{- define "inference-logging.mounts" -}}
{{- if eq .Values.listener.mode "node" }}
# Below the node's directory for this namespace, one for each pod.
- { name: queue, mountPath: /run/inference-logging, subPathExpr: $(POD_NAME) }
{{- else }}
- { name: queue, mountPath: /run/inference-logging }
- {{ include "inference-logging.mount.segments" . }}
{{- end }}
- { name: logging-config, mountPath: /etc/inference-logging, readOnly: true }
{{- end }}

{{/* Pods that share a volume each have a directory of their own: offsets and quota are a pod's own. */}}
{{- define "inference-logging.mount.segments" -}}
{{- if eq (include "inference-logging.isShared" .) "true" -}}
{ name: segments, mountPath: /var/log/inference-logging, subPathExpr: $(POD_NAME) }
{{- else -}}
{ name: segments, mountPath: /var/log/inference-logging }
{{- end -}}
{{- end }}
