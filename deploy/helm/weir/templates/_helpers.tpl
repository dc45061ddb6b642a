{{- define "weir.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "weir.secret" -}}
{{ default (printf "%s-admin" (include "weir.name" .)) .Values.admin.existingSecret }}
{{- end }}

{{- define "weir.ports" -}}
- {name: kafka, port: {{ .Values.ports.bootstrap }}, targetPort: {{ .Values.ports.bootstrap }}}
{{- range $i := until (int .Values.brokers.count) }}
{{- $port := add $.Values.brokers.firstPort $i }}
- {name: broker-{{ add $.Values.brokers.firstNodeId $i }}, port: {{ $port }}, targetPort: {{ $port }}}
{{- end }}
{{- end }}
