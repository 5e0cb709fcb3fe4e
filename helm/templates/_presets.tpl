{{/*
What the chart knows of each kind of server. A preset says what `server` is where the values say nothing, and which probes
there are; the command is made from what came of both.

Readiness is the server's, also while records back up: logging takes no GPU out of service. With server.readyOnBacklog
off it is our graded health, whose 503 sends the load elsewhere. Liveness is neither: a restart costs minutes of model load
and repairs no full disk; it fails only where the listener makes no progress.
*/}}

{{- define "inference-logging.preset.fastapi" -}}
{{- $config := include "inference-logging.config" . | fromYaml }}
port: 8000
shutdownSeconds: 30
processBytes: 67108864 # what a process has at least, beside the queues
gpu: { count: 0 }
probes:
  startup:
    httpGet: { path: {{ $config.liveness_path | quote }}, port: http }
    periodSeconds: 2
    timeoutSeconds: 5
    failureThreshold: 60
  readiness:
    httpGet: { path: {{ ternary $config.liveness_path $config.health_path .Values.server.readyOnBacklog | quote }}, port: http }
    periodSeconds: 5
    timeoutSeconds: 3
    failureThreshold: 2
  liveness:
    httpGet: { path: {{ $config.liveness_path | quote }}, port: http }
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
{{- end }}

{{/* vLLM's own /health answers for its engine and, with wrap_health: status, for the logging. Half an hour to load a model. */}}
{{- define "inference-logging.preset.vllm" -}}
{{- $config := include "inference-logging.config" . | fromYaml }}
port: 8000
shutdownSeconds: 60
processBytes: 1073741824
gpu: { count: 1 }
shm: { sizeLimit: 2Gi }
probes:
  startup:
    httpGet: { path: {{ $config.liveness_path | quote }}, port: http }
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 360
  readiness:
    {{- $isOwn := or .Values.server.readyOnBacklog (eq $config.wrap_health "status") }}
    httpGet: { path: {{ ternary $config.wrap_health_path $config.health_path $isOwn | quote }}, port: http }
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 2
  liveness:
    httpGet: { path: {{ $config.liveness_path | quote }}, port: http }
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
{{- end }}

{{/*
Triton's readiness stays 200 when one of its stubs has died for good; the listener knows, and /producers on its port says
so until a model instance of that name is there again.
*/}}
{{- define "inference-logging.preset.triton" -}}
port: 8000
extraPorts:
  - { name: grpc, port: 8001 }
  - { name: triton-metrics, port: 8002 }
shutdownSeconds: 30
processBytes: 134217728
gpu: { count: 0 }
shm: { sizeLimit: 512Mi }
probes:
  startup:
    httpGet: { path: /v2/health/ready, port: http }
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 240
  readiness:
    httpGet: { path: /v2/health/ready, port: http }
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 2
  liveness:
    {{- if eq .Values.listener.mode "sidecar" }}
    httpGet: { path: /producers, port: {{ include "inference-logging.upPort" "listener" }} }
    {{- else }}
    httpGet: { path: /v2/health/live, port: http }
    {{- end }}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
{{- end }}

{{- define "inference-logging.preset.custom" -}}
shutdownSeconds: 30
processBytes: 8388608
gpu: { count: 0 }
{{- end }}

{{/*
The listener's: its parent asks whether it is live, since a container that the kubelet replaces makes the pod unready. Its
readiness answers for the logging where the server itself has no route that does.
*/}}
{{- define "inference-logging.listenerProbes" -}}
startupProbe:
  httpGet: { path: /live, port: metrics }
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 60
{{- if and (eq .Values.mode "server") (has .Values.preset (list "triton" "custom")) (not .Values.server.readyOnBacklog) }}
readinessProbe:
  httpGet: { path: /health, port: metrics }
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end }}
{{- end }}

{{/* The command and arguments of each preset: (list root server). */}}

{{- define "inference-logging.command.fastapi" -}}
{{- $server := index . 1 }}
command: [python, -m, uvicorn]
args:
  - {{ $server.application | quote }}
  - --host=0.0.0.0
  - --port={{ int64 $server.port }}
  - --workers={{ int64 $server.processes }}
  - --timeout-graceful-shutdown={{ int64 $server.shutdownSeconds }}
  - --no-access-log
{{- end }}

{{- define "inference-logging.command.vllm" -}}
{{- $server := index . 1 }}
command: [vllm, serve]
args:
  - {{ $server.model | quote }}
  - --host=0.0.0.0
  - --port={{ int64 $server.port }}
  - --middleware=inference_logging.InferenceLoggingMiddleware
  - --disable-uvicorn-access-log
  - --shutdown-timeout={{ int64 $server.shutdownSeconds }}
  {{- if gt (int64 $server.processes) 1 }}
  - --api-server-count={{ int64 $server.processes }}
  {{- end }}
{{- end }}

{{- define "inference-logging.command.triton" -}}
{{- $server := index . 1 }}
command: [tritonserver]
args:
  - {{ printf "--model-repository=%s" $server.model | quote }}
  - --http-port={{ int64 $server.port }}
  - --exit-timeout-secs={{ int64 $server.shutdownSeconds }}
{{- end }}

{{/* What the arguments of a preset say already, and the value that they come from. */}}
{{- define "inference-logging.setBy" -}}
{{- $ends := "server.shutdownSeconds" }}
{{- $all := dict
  "fastapi" (dict "port" "server.port" "workers" "server.processes" "timeout-graceful-shutdown" $ends)
  "vllm" (dict "port" "server.port" "api-server-count" "server.processes" "shutdown-timeout" $ends "model" "server.model")
  "triton" (dict "http-port" "server.port" "model-repository" "server.model" "exit-timeout-secs" $ends) }}
{{- $own := get $all .Values.preset | default dict }}
{{- if $own }}{{ $own = set $own "host" "server.args, for all arguments: probes ask the pod's address" }}{{ end }}
{{- toYaml $own }}
{{- end }}

{{- define "inference-logging.command.custom" -}}
{}
{{- end }}
