{{/* How much memory and disk the logging takes, and how long the end of a pod. */}}

{{/*
Bytes of one process's queue file: 64 KiB of header and schemas, a slot of 2 KiB per request in flight, in pages, and the
ring, rounded up to a power of two. The audit lane has a second file without slots.
*/}}
{{- define "inference-logging.queueFileBytes" -}}
{{- $slots := include "inference-logging.parameter" (list . "in_flight_slots") | float64 | int64 }}
{{- $ring := include "inference-logging.ringBytes" (include "inference-logging.parameter" (list . "queue_bytes")) | int64 }}
{{- $bytes := add 65536 (mul 4096 (div (add (mul $slots 2048) 4095) 4096)) $ring }}
{{- if eq (include "inference-logging.parameter" (list . "audit")) "on" }}
{{- $bytes = add $bytes 65536 (include "inference-logging.ringBytes" (include "inference-logging.parameter" (list . "audit_queue_bytes")) | int64) }}
{{- end }}
{{- $bytes }}
{{- end }}

{{- define "inference-logging.ringBytes" -}}
{{- $bytes := include "inference-logging.bytes" . | int64 }}
{{- $ring := 65536 }}
{{- range until 40 }}
{{- if lt $ring $bytes }}{{ $ring = mul $ring 2 }}{{ end }}
{{- end }}
{{- $ring }}
{{- end }}

{{/* All processes of the server, and 1 MiB for the listener's own queues, locks and the page that all share. */}}
{{- define "inference-logging.queuesBytes" -}}
{{- add (mul (int64 .Values.server.processes) (include "inference-logging.queueFileBytes" . | int64)) 1048576 }}
{{- end }}

{{/*
Twice that, in whole MiB: where the server's container is restarted, the queues of the processes that died are there until
the listener has written what is in them, and the new processes allocate theirs at once.
*/}}
{{- define "inference-logging.neededQueueBytes" -}}
{{- $mib := div (add (mul 2 (include "inference-logging.queuesBytes" . | int64)) 1048575) 1048576 }}
{{- mul $mib 1048576 }}
{{- end }}

{{- define "inference-logging.queueSizeLimit" -}}
{{- .Values.storage.queue.sizeLimit | default (printf "%dMi" (div (include "inference-logging.neededQueueBytes" . | int64) 1048576)) }}
{{- end }}

{{/* What segments may take: the rest of the volume is for the shipper's state and what is written between two looks. */}}
{{- define "inference-logging.quotaBytes" -}}
{{- if hasKey .Values.config "quota_bytes" }}
{{- include "inference-logging.bytes" .Values.config.quota_bytes }}
{{- else }}
{{- div (mul (include "inference-logging.bytes" .Values.storage.segments.size | int64) 8) 10 }}
{{- end }}
{{- end }}

{{/* Longest line that a shipper has to take: each byte of a record can become six (\u001f), and twice is room for names. */}}
{{- define "inference-logging.longestLineBytes" -}}
{{- max 1048576 (mul 12 (include "inference-logging.bytes" (include "inference-logging.parameter" (list . "max_record_bytes")) | int64)) }}
{{- end }}

{{/*
What the end of a pod takes, one after the other: endpoints vanish (preStop), the server ends its streams, and drains its
queue or waits for the listener to do so; then the listener drains what is left, then the shipper delivers it. 5 s for the
ends of the processes themselves, and 5 more for a shipper that others made, which ends when it has had its time.
*/}}
{{- define "inference-logging.neededGraceSeconds" -}}
{{- if eq .Values.mode "node" }}
{{- include "inference-logging.neededNodeGraceSeconds" . }}
{{- else }}
{{- $server := include "inference-logging.server" . | fromYaml }}
{{- $drain := include "inference-logging.parameter" (list . "drain_deadline_s") | float64 | ceil | int64 }}
{{- $seconds := add 5 (int64 $server.preStopSleepSeconds) (int64 $server.shutdownSeconds) $drain }}
{{- if eq .Values.listener.mode "sidecar" }}{{ $seconds = add $seconds $drain }}{{ end }}
{{- if ne .Values.shipper.type "none" }}{{ $seconds = add $seconds (int64 .Values.shipper.flushSeconds) }}{{ end }}
{{- if eq (include "inference-logging.isForeign" .) "true" }}{{ $seconds = add $seconds 5 }}{{ end }}
{{- $seconds }}
{{- end }}
{{- end }}

{{/* Of a node's pod: its listener drains, then its shipper delivers. */}}
{{- define "inference-logging.neededNodeGraceSeconds" -}}
{{- $seconds := add 10 (include "inference-logging.parameter" (list . "drain_deadline_s") | float64 | ceil | int64) }}
{{- if ne .Values.shipper.type "none" }}{{ $seconds = add $seconds 5 (int64 .Values.shipper.flushSeconds) }}{{ end }}
{{- $seconds }}
{{- end }}

{{- define "inference-logging.graceSeconds" -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds }}
{{- include "inference-logging.neededGraceSeconds" . }}
{{- else }}
{{- int64 .Values.terminationGracePeriodSeconds }}
{{- end }}
{{- end }}
