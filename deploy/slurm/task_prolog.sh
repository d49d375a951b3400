#!/bin/sh
# TaskProlog of Slurm for jupyter-gpushare: slurm.conf has TaskProlog=/etc/slurm/task_prolog.sh
#
# A job with shards is led to the scheduler of its node: kernels of a Jupyter server share the GPU
# from then on, and so does `jupyter gpushare run -- COMMAND`. A job with whole GPUs stays outside.
# Slurm reads what this prints. LD_PRELOAD is not set: it would follow the job into containers
# (Apptainer, Pyxis), where the library is not, and every command there would complain.
#
# It runs before each task, as the user: nothing here may fail, or wait.

directory=/run/jupyter-gpushare # where the node's scheduler serves
scheduler_uid=                  # its account, if that is not root

# What a job has brought along from the notebook that submitted it: the notebook's place, which it
# has on its own node alone.
forget_the_notebook() {
    [ -n "${GPUSHARE_SOCKET:-}" ] && echo "unset GPUSHARE_SOCKET"
    [ -n "${GPUSHARE_TOKEN:-}" ] && echo "unset GPUSHARE_TOKEN"
    case "${LD_PRELOAD:-}" in
    *"
"*) ;; # Slurm reads one line for each variable
    *libgpushare.so*) preload_the_rest ;;
    esac
}

# LD_PRELOAD without our library, wherever that stands in it.
preload_the_rest() {
    rest=
    set -f
    IFS=' :'
    for library in $LD_PRELOAD; do
        case "$library" in
        libgpushare.so | */libgpushare.so | '') ;;
        *) rest="${rest:+$rest:}$library" ;;
        esac
    done
    unset IFS
    set +f
    if [ -n "$rest" ]; then
        printf 'export LD_PRELOAD=%s\n' "$rest"
    else
        echo "unset LD_PRELOAD"
    fi
}

# A job with whole GPUs that submits another one hands its word on.
come_back() {
    [ "${GPUSHARE_DISABLED_BY:-}" = slurm ] || return 0
    echo "unset GPUSHARE_DISABLE"
    echo "unset GPUSHARE_DISABLED_BY"
}

lead_to_the_scheduler() {
    [ -d "$directory" ] || return 0 # a node without a scheduler
    [ -n "${GPUSHARE_RUNTIME_DIR:-}" ] || echo "export GPUSHARE_RUNTIME_DIR=$directory"
    [ -z "$scheduler_uid" ] || [ -n "${GPUSHARE_SCHEDULER_UID:-}" ] ||
        echo "export GPUSHARE_SCHEDULER_UID=$scheduler_uid"
}

# Slurm has given the GPUs to this job alone. A user who wants turns among their own notebooks sets
# GPUSHARE_DISABLE=0.
stay_outside() {
    [ -n "${GPUSHARE_DISABLE:-}" ] && return 0
    echo "export GPUSHARE_DISABLE=1"
    echo "export GPUSHARE_DISABLED_BY=slurm"
}

{
    forget_the_notebook
    if [ -n "${SLURM_SHARDS_ON_NODE:-}" ]; then
        come_back
        lead_to_the_scheduler
    elif [ -n "${SLURM_JOB_GPUS:-}${SLURM_STEP_GPUS:-}${SLURM_GPUS_ON_NODE:-}" ]; then
        stay_outside
    else
        come_back
    fi
} 2>/dev/null
exit 0
