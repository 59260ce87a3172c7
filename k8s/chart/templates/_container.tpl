{{- define "nats-bridge.name" -}}
{{ .Values.fullnameOverride | default (contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name)) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "nats-bridge.identity" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels of an application's pods that have this sidecar, by which its policy and its monitor choose them. They leave
the labels of app.kubernetes.io to the application. */}}
{{- define "nats-bridge.podLabels" -}}
nats-bridge: sidecar
nats-bridge/instance: {{ include "nats-bridge.name" . }}
{{- end }}

{{/* The labels by which pods of this release, and no others, are chosen. */}}
{{- define "nats-bridge.selector" -}}
{{ include (eq .Values.mode "standalone" | ternary "nats-bridge.identity" "nats-bridge.podLabels") . }}
{{- end }}

{{/* The section leadership: as JSON, if the values have to give it. Without leases, a second replica would be refused, or
repeat the work of the first. It is a variable of the pods: a change makes new pods, and no process reloads this section. */}}
{{- define "nats-bridge.leadership" -}}
{{- $config := fromYaml .Values.config }}
{{- $lacking := and (eq .Values.mode "standalone") (gt (int .Values.replicas) 1) (not (hasKey $config "leadership")) }}
{{- if or .Values.leadership (and $lacking (kindIs "map" .Values.leadership)) }}
{{- $connection := .Values.leadership.connection | default "default" }}
{{- if and $lacking $config.connections (kindIs "map" $config.connections) (not (hasKey $config.connections $connection)) }}
{{- printf "replicas: %v needs leases, and config has no connection '%s' for them: set leadership.connection to one of %s" .Values.replicas $connection (keys $config.connections | sortAlpha | join ", ") | fail }}
{{- end }}
{{- toJson .Values.leadership }}
{{- end }}
{{- end }}

{{- define "nats-bridge.labels" -}}
{{ include "nats-bridge.identity" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* A native sidecar, for initContainers (Kubernetes 1.29 or newer). */}}
{{- define "nats-bridge.sidecar" -}}
{{ include "nats-bridge.container" . }}
  restartPolicy: Always # which makes it a sidecar
{{- end }}

{{/* The container, for containers. */}}
{{- define "nats-bridge.container" -}}
- name: nats-bridge
  image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
  {{- if ne .Values.image.pullPolicy "IfNotPresent" }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- end }}
  args: [run, -c, /etc/nats-bridge/config.yaml]
  env:
    # The kubelet probes the pod's address, where a loopback listener does not answer. POST is accepted only from inside
    # the pod (http.changes_from).
    - {name: BRIDGE_HTTP__LISTEN, value: ":8322"}
    # Names the pod in OTLP telemetry.
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    - name: POD_NAMESPACE
      valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
    - name: OTEL_RESOURCE_ATTRIBUTES
      value: k8s.pod.name=$(POD_NAME),k8s.namespace.name=$(POD_NAMESPACE)
    {{- with include "nats-bridge.leadership" . }}
    - {name: BRIDGE_LEADERSHIP, value: {{ . | quote }}}
    {{- end }}
    {{- with .Values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.envFrom }}
  envFrom: {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - {name: bridge-http, containerPort: 8322, protocol: TCP}
  {{- range $probe, $path := dict "startupProbe" "/startupz" "livenessProbe" "/livez" "readinessProbe" (.Values.readinessProbe).path }}
  {{- with index $.Values $probe }}
  {{- if .enabled }}
  {{ $probe }}:
    httpGet: {path: {{ $path | quote }}, port: bridge-http}
    {{- toYaml (omit . "enabled" "path") | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- end }}
  resources: {{- toYaml .Values.resources | nindent 4 }}
  securityContext: {{- toYaml .Values.securityContext | nindent 4 }}
  volumeMounts:
    # Whole folders: a file that is mounted by subPath never changes in a running pod.
    - {name: nats-bridge-config, mountPath: /etc/nats-bridge, readOnly: true}
    - {name: nats-bridge-credentials, mountPath: /etc/nats-bridge-credentials, readOnly: true}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The pod's volumes. */}}
{{- define "nats-bridge.volumes" -}}
- name: nats-bridge-config
  configMap: {name: {{ include "nats-bridge.name" . }}}
- name: nats-bridge-credentials
  secret: {secretName: {{ .Values.credentialsSecret }}, optional: true}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The spec of the standalone pods. */}}
{{- define "nats-bridge.podSpec" -}}
{{- with .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "nats-bridge.name" .) "") }}
serviceAccountName: {{ . }}
{{- end }}
automountServiceAccountToken: {{ .Values.serviceAccount.automount }}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $key := list "imagePullSecrets" "nodeSelector" "affinity" "tolerations" }}
{{- with index $.Values $key }}
{{ $key }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{- toYaml . | nindent 4 }}
    {{- if not (hasKey . "labelSelector") }}
    labelSelector:
      matchLabels: {{- include "nats-bridge.selector" $ | nindent 8 }}
    {{- end }}
  {{- end }}
{{- end }}
{{- with .Values.pod }}
{{- toYaml . | nindent 0 }}
{{- end }}
containers: {{- include "nats-bridge.container" . | nindent 2 }}
volumes: {{- include "nats-bridge.volumes" . | nindent 2 }}
{{- end }}
