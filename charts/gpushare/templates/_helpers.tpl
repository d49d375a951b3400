{{/* Names and labels, and what no release may have. */}}
{{- define "gpushare.name" -}}
{{- if contains "gpushare" .Release.Name -}}
{{ .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-gpushare" (.Release.Name | trunc 44) }}
{{- end -}}
{{- end -}}

{{- define "gpushare.selector" -}}
app.kubernetes.io/name: gpushare
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gpushare.labels" -}}
{{ include "gpushare.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Not those of the nodes' pods: their DaemonSet and NetworkPolicy select by them. */}}
{{- define "gpushare.view.selector" -}}
app.kubernetes.io/name: gpushare-view
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gpushare.view.labels" -}}
{{ include "gpushare.view.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "gpushare.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "gpushare.name" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{- define "gpushare.kills" -}}
{{- $set := get .Values.scheduler.settings "overdue_policy" | toString | eq "kill" -}}
{{- $flag := regexMatch "overdue[-_]policy[= ]kill" (join " " .Values.scheduler.args) -}}
{{- if or $set $flag }}yes{{ end -}}
{{- end -}}

{{- define "gpushare.check" -}}
{{- if not .Values.image.repository -}}
{{- fail "There is no image.repository. Build an image with jupyter-gpushare[kubernetes] and jupyterhub (docs/kubernetes.md), and name it there." -}}
{{- end -}}
{{- if not .Values.hub.apiUrl -}}
{{- fail "There is no hub.apiUrl, so no scheduler could say whose a notebook is. Give the address of your hub's API, such as http://hub:8081/hub/api." -}}
{{- end -}}
{{- if and (include "gpushare.kills" .) (not .Values.hostPID) -}}
{{- fail "The overdue policy kill needs hostPID, for a scheduler cannot end a process that it does not see. Set hostPID to true, or leave the policy at warn." -}}
{{- end -}}
{{- end -}}

{{- define "gpushare.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
