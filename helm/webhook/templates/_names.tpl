{{- define "inference-logging-webhook.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $full .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "inference-logging-webhook.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "inference-logging-webhook.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "inference-logging-webhook.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "inference-logging-webhook.image" -}}
{{- with .Values.image.digest }}
{{- printf "%s@%s" $.Values.image.repository . }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "inference-logging-webhook.secretName" -}}
{{- ternary .Values.certificate.existingSecret (printf "%s-tls" (include "inference-logging-webhook.fullname" .)) (eq .Values.certificate.from "secret") }}
{{- end }}

{{/* What a pod gets, as the program reads it. */}}
{{- define "inference-logging-webhook.addition" -}}
{{- if eq .Values.adds "node" }}
{{- include "inference-logging-webhook.node" . | fromYaml | toPrettyJson }}
{{- else }}
{{- $added := dict
  "volumes" (include "inference-logging-library.volumes" .Values.added | fromYamlArray)
  "initContainers" (list (include "inference-logging-library.listener" .Values.added | fromYaml))
  "env" (include "inference-logging-library.env" .Values.added | fromYamlArray)
  "volumeMounts" (include "inference-logging-library.volumeMounts" .Values.added | fromYamlArray) }}
{{- toPrettyJson $added }}
{{- end }}
{{- end }}

{{/* The same as the policy of the chart inference-logging adds, node.inject. */}}
{{- define "inference-logging-webhook.node" -}}
volumes:
  - name: inference-logging-queue
    persistentVolumeClaim: { claimName: {{ .Values.claimName }} }
env:
  - name: LOGGING_POD_NAME
    valueFrom: { fieldRef: { fieldPath: metadata.name } }
  - { name: INFERENCE_LOGGING_LISTENER, value: external }
  - { name: INFERENCE_LOGGING_QUEUE_DIRECTORY, value: /run/inference-logging/queues }
  - { name: INFERENCE_LOGGING_DIRECTORY, value: /var/log/inference-logging/segments }
volumeMounts:
  - { name: inference-logging-queue, mountPath: /run/inference-logging, subPathExpr: $(LOGGING_POD_NAME) }
{{- end }}
