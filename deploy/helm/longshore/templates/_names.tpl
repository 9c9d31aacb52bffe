{{- define "longshore.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "longshore.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "longshore.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "longshore.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "longshore.selector" -}}
app.kubernetes.io/name: {{ include "longshore.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "longshore.labels" -}}
{{ include "longshore.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* The scaler's pods have another name, or the service and the budget of the processes would take them for some. */ -}}
{{- define "longshore.scaler.selector" -}}
app.kubernetes.io/name: {{ include "longshore.name" . }}-scaler
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "longshore.scaler.labels" -}}
{{ include "longshore.scaler.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* The file that the program reads: the values' config, and what the chart has to know, too. */ -}}
{{- define "longshore.config" -}}
{{- $set := dict "admin" (dict "listen" "0.0.0.0:8080") "kill_grace" (printf "%ds" (int .Values.killGrace)) -}}
{{- toYaml (mustMergeOverwrite (deepCopy .Values.config) $set) -}}
{{- end -}}
