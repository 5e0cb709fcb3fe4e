{{/* The package's defaults; written by `python -m tools.chart.generated`. */}}
{{- define "inference-logging-library.defaults" -}}
audit: 'off'
audit_queue_bytes: 4194304
drain_deadline_s: 5.0
in_flight_slots: 1024
queue_bytes: 16777216
rotate_bytes: 67108864
{{- end }}
