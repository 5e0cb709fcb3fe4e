{{/* What the values come to: with the preset, with the package's defaults, as numbers. */}}

{{/*
Puts into the values what they leave to files/further-values.yaml, in place, as Helm puts in those of values.yaml; also
those, where a key is there without a value: Helm then removes the default. Each file that makes an object begins with it.
*/}}
{{- define "inference-logging.complete" -}}
{{- include "inference-logging.fill" (list .Values (.Files.Get "files/values.yaml" | fromYaml)) }}
{{- include "inference-logging.fill" (list .Values (.Files.Get "files/further-values.yaml" | fromYaml)) }}
{{- end }}

{{/* Adds to the first of (list given more), in place, what only the second has. */}}
{{- define "inference-logging.fill" -}}
{{- $given := index . 0 }}
{{- range $key, $value := index . 1 }}
{{- if not (hasKey $given $key) }}
{{- $_ := set $given $key $value }}
{{- else if and (kindIs "map" $value) (kindIs "map" (get $given $key)) }}
{{- include "inference-logging.fill" (list (get $given $key) $value) }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Puts the second of (list base given) over the first, in place. Nothing, "", [] and {} say nothing; 0 and false do.
*/}}
{{- define "inference-logging.overlay" -}}
{{- $base := index . 0 }}
{{- range $key, $value := index . 1 }}
{{- if kindIs "map" $value }}
{{- if not (kindIs "map" (get $base $key)) }}{{ $_ := set $base $key dict }}{{ end }}
{{- include "inference-logging.overlay" (list (get $base $key) $value) }}
{{- else if or (kindIs "bool" $value) (kindIs "float64" $value) (kindIs "int64" $value) (not (empty $value)) }}
{{- $_ := set $base $key $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* `server` of the values over the preset; a list or a handler of a probe replaces the preset's. */}}
{{- define "inference-logging.server" -}}
{{- $server := include (printf "inference-logging.preset.%s" .Values.preset) . | fromYaml }}
{{- include "inference-logging.overlay" (list $server (omit .Values.server "probes")) }}
{{- $_ := set $server "probes" (include "inference-logging.probes" (list $server.probes .Values.server.probes) | fromYaml) }}
{{- toYaml $server }}
{{- end }}

{{/* The probes of a container: (list of the preset, of the values). One that is off, or has no handler, is left out. */}}
{{- define "inference-logging.probes" -}}
{{- $preset := default dict (index . 0) }}
{{- $probes := dict }}
{{- range $name, $given := index . 1 }}
{{- $probe := deepCopy (get $preset $name | default dict) }}
{{- $handlers := list "httpGet" "tcpSocket" "exec" "grpc" }}
{{- range $handlers }}
{{- if hasKey $given . }}
{{- range $handlers }}{{ $_ := unset $probe . }}{{ end }}
{{- end }}
{{- end }}
{{- include "inference-logging.overlay" (list $probe (omit $given "enabled")) }}
{{- if and $given.enabled (pick $probe "httpGet" "tcpSocket" "exec" "grpc") }}
{{- $_ := set $probes (printf "%sProbe" $name) $probe }}
{{- end }}
{{- end }}
{{- toYaml $probes }}
{{- end }}

{{/* The package's own default of a parameter, from files/defaults.yaml: (list root name). */}}
{{- define "inference-logging.default" -}}
{{- $root := index . 0 }}
{{- get ($root.Files.Get "files/defaults.yaml" | fromYaml) (index . 1) }}
{{- end }}

{{/* What a shipper reads: the segments, and those of the audit lane where it has some, as a list. */}}
{{- define "inference-logging.segmentFiles" -}}
{{- $config := include "inference-logging.config" . | fromYaml }}
{{- $each := ternary "/*/*" "" (eq .Values.mode "node") }}
- {{ $config.directory }}{{ $each }}/*.jsonl
{{- if and (eq (include "inference-logging.parameter" (list . "audit")) "on") (eq (include "inference-logging.parameter" (list . "audit_sink")) "file") }}
{{- if $config.audit_directory }}
- {{ $config.audit_directory }}{{ $each }}/*.jsonl
{{- else }}
- {{ $config.directory }}{{ $each }}/audit/*.jsonl
{{- end }}
{{- end }}
{{- end }}

{{/* The directories below which a node has those of its pods, as a regular expression. */}}
{{- define "inference-logging.segmentRoots" -}}
{{- $config := include "inference-logging.config" . | fromYaml }}
{{- $roots := list (regexQuoteMeta $config.directory) }}
{{- with $config.audit_directory }}{{ $roots = append $roots (regexQuoteMeta .) }}{{ end }}
{{- printf "(?:%s)" (join "|" $roots) }}
{{- end }}

{{/* A parameter of logging.yaml, also one of its group `advanced`, or its default: (list root name). */}}
{{- define "inference-logging.parameter" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $advanced := $root.Values.config.advanced | default dict }}
{{- if hasKey $root.Values.config $name }}
{{- get $root.Values.config $name }}
{{- else if hasKey $advanced $name }}
{{- get $advanced $name }}
{{- else }}
{{- include "inference-logging.default" . }}
{{- end }}
{{- end }}

{{/* A size as a whole number of bytes: 512Mi as Kubernetes writes it, 512MiB and 512 MB as logging.yaml may. */}}
{{- define "inference-logging.bytes" -}}
{{- if or (kindIs "float64" .) (kindIs "int64" .) (kindIs "int" .) }}
{{- int64 . }}
{{- else }}
{{- $text := . | toString | trim | upper | trimSuffix "B" | trim }}
{{- $unit := regexFind "[A-Z]*$" $text }}
{{- $factors := dict "" 1 "K" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "KI" 1024 "MI" 1048576 "GI" 1073741824 "TI" 1099511627776 }}
{{- mulf (trimSuffix $unit $text | trim | float64) (get $factors $unit | float64) | int64 }}
{{- end }}
{{- end }}

{{/*
logging.yaml, as JSON, which is YAML too: a listener without Python reads nothing else. What the chart owns is set here
and nowhere else; what it only suggests gives way to the values.
*/}}
{{- define "inference-logging.config" -}}
{{- $config := deepCopy .Values.config }}
{{- $_ := set $config "directory" "/var/log/inference-logging/segments" }}
{{- $_ := set $config "queue_directory" "/run/inference-logging/queues" }}
{{- $suggested := dict "quota_bytes" (include "inference-logging.quotaBytes" . | int64) "open_failure" "serve" }}
{{- range list "health_path" "liveness_path" }}
{{- $_ := set $suggested . (include "inference-logging.default" (list $ .)) }}
{{- end }}
{{- if eq .Values.preset "vllm" }}
{{- $_ := set $suggested "wrap_health_path" "/health" }}
{{- $_ := set $suggested "wrap_health" (ternary "header" "status" .Values.server.readyOnBacklog) }}
{{- end }}
{{- if and (eq .Values.listener.mode "inProcess") (has .Values.preset (list "fastapi" "vllm")) }}
{{- /* vLLM has a /metrics of its own. */}}
{{- $_ := set $suggested "metrics_path" (ternary "/metrics/logging" "/metrics" (eq .Values.preset "vllm")) }}
{{- end }}
{{- if eq .Values.mode "node" }}
{{- /* A line says of which pod and service it is, whatever reads it. */}}
{{- $_ := set $suggested "resource_on_lines" "on" }}
{{- end }}
{{- if and (eq .Values.shipper.type "inference-logging") (eq .Values.mode "server") }}
{{- $_ := set $suggested "retention_waits_for" (list .Values.destination.type) }}
{{- end }}
{{- $advanced := $config.advanced | default dict }}
{{- range $name, $value := $suggested }}
{{- if not (or (hasKey $config $name) (hasKey $advanced $name)) }}{{ $_ := set $config $name $value }}{{ end }}
{{- end }}
{{- toPrettyJson $config }}
{{- end }}
