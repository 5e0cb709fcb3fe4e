{{/* The pod of a node: one listener for the queues of all pods there, and one shipper. */}}

{{/* The security context of root with no more than these capabilities: (list capability …). */}}
{{- define "inference-logging.nodeSecurity" -}}
runAsUser: 0
runAsGroup: 0
runAsNonRoot: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL], add: {{ toJson . }} }
{{- end }}

{{- define "inference-logging.container.node" -}}
{{- $image := .Values.listener.image -}}
name: listener
image: {{ include "inference-logging.image" (list $image .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
{{ include "inference-logging.supervisedListener" (list . "/inference-logging-listener") }}
  - /inference-logging-listener
  - listen
  - --each=/run/inference-logging/{k8s.namespace.name}/{k8s.pod.name}/queues
  {{- range .Values.node.namespaces }}
  - --make=/run/inference-logging/{{ . }}
  {{- end }}
  - --forget-after-s={{ int64 .Values.node.forgetAfterSeconds }}
  - --ended-bytes={{ include "inference-logging.bytes" .Values.node.endedSize }}
  - --metrics-port={{ int64 .Values.listener.port }}
  - --status-interval-s={{ .Values.listener.statusIntervalSeconds }}
ports:
  - { name: metrics, containerPort: {{ int64 .Values.listener.port }} }
  - { name: up-metrics, containerPort: {{ include "inference-logging.upPort" "listener" }} }
env:
  - name: NODE_NAME
    valueFrom: { fieldRef: { fieldPath: spec.nodeName } }
  # Not those of the pod that listens: the directory says of which pod a record is.
  - { name: OTEL_RESOURCE_ATTRIBUTES, value: "host.name=$(NODE_NAME),k8s.node.name=$(NODE_NAME)" }
  - { name: INFERENCE_LOGGING_CONFIG_FILE, value: /etc/inference-logging/logging.yaml }
  {{- with .Values.listener.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{ include "inference-logging.listenerProbes" . }}
resources:
  {{- toYaml .Values.listener.resources | nindent 2 }}
securityContext:
  {{- /* A thread for each pod becomes that pod's user; the directories of segments are given to them. */}}
  {{- include "inference-logging.nodeSecurity" (list "CHOWN" "SETGID" "SETUID") | nindent 2 }}
volumeMounts:
  - { name: queues, mountPath: /run/inference-logging }
  - { name: segments, mountPath: /var/log/inference-logging }
  - { name: logging-config, mountPath: /etc/inference-logging, readOnly: true }
  {{- with .Values.listener.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
