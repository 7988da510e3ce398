#!/bin/sh
# TaskProlog=/etc/slurm/taskprolog.sh in slurm.conf, or srun --task-prolog.
# A task of a job that sets SGPATCH_PYTHON, the interpreter that will start the
# server, is not started unless the patch holds:
#   sbatch --export=ALL,SGPATCH_PYTHON=/opt/sglang/bin/python3 job.sh
# slurmstepd obeys what this prints, on standard error as well ("export NAME=value",
# "unset NAME"), so each line of sgpatch gets "print" in front, which shows it in
# the output of the task.
[ -n "${SGPATCH_PYTHON-}" ] || exit 0
said=$(/usr/local/bin/sgpatch verify --quiet --python "$SGPATCH_PYTHON" 2>&1) && exit 0
status=$?
printf '%s\n' "$said" | while IFS= read -r line; do printf 'print sgpatch: %s\n' "$line"; done
exit "$status"
