{{/* Names and labels of everything in a release. */}}

{{- define "inference-logging.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* At most 52 characters: what is appended must fit the 63 of a label. */}}
{{- define "inference-logging.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $full .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "inference-logging.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "inference-logging.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "inference-logging.selectorLabels" -}}
app.kubernetes.io/name: {{ include "inference-logging.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "inference-logging.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "inference-logging.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* A tag, of which --set makes a number where it can. */}}
{{- define "inference-logging.tag" -}}
{{- kindIs "string" . | ternary . (int64 . | toString) }}
{{- end }}

{{/* The reference of an image: (list image tag), where tag stands in for one that is not given. */}}
{{- define "inference-logging.image" -}}
{{- $image := index . 0 }}
{{- with include "inference-logging.tag" ($image.tag | default (index . 1)) }}
{{- printf "%s%s%s" $image.repository (ternary "@" ":" (hasPrefix "sha256:" .)) . }}
{{- else }}
{{- $image.repository }}
{{- end }}
{{- end }}

{{/* Whether the pods of the server have the segments on a volume of their own. */}}
{{- define "inference-logging.hasSegments" -}}
{{- and (eq .Values.mode "server") (ne .Values.listener.mode "node") }}
{{- end }}

{{- define "inference-logging.claimName" -}}
{{- .Values.storage.segments.persistence.existingClaim | default (printf "%s-segments" (include "inference-logging.fullname" .)) }}
{{- end }}

{{/* The volume with the queues of a namespace: (list root namespace). */}}
{{- define "inference-logging.queueVolumeName" -}}
{{- printf "%s-queues-%s" (include "inference-logging.fullname" (index . 0)) (index . 1) }}
{{- end }}
