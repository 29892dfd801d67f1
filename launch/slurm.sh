#!/usr/bin/env bash
# Training under Slurm: see `bash launch/slurm.sh --help`. Flags of sbatch take precedence over the lines below.
#SBATCH --job-name=limit-zoo
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=TERM@120
set -euo pipefail

# sbatch runs a copy of this file from its spool: the checkout is where it was submitted from
root=${SLURM_SUBMIT_DIR:-$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")}
most_restarts=${MAX_RESTARTS:-100}

usage() {
  cat <<EOF
usage: sbatch [flags of sbatch] launch/slurm.sh COMMAND …      from the folder of the checkout, environment active
       bash launch/slurm.sh --dry_run COMMAND …                prints what would run

One process a task. On GPUs jax takes one GPU a task: give each node as many tasks as GPUs, and no --gpus-per-task.

  sbatch --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 launch/slurm.sh \\
    python -m launch.train --config=configs/NAME.py --workdir=/shared/runs/NAME

An array is several runs; %a in the command stands for the number of each (not before a letter or digit, as in 50%accuracy;
%%a stands for %a itself):

  sbatch --array=0-4 launch/slurm.sh \\
    python -m launch.train --config=configs/NAME.py --config.seed=%a --workdir=/shared/runs/NAME-%a

120 seconds before the time limit, and when the job is preempted, Slurm sends SIGTERM to the tasks. launch.train saves and ends
with exit code $preempted; the job is then put back into the queue, and the same command continues, at most MAX_RESTARTS
(now $most_restarts) times. Any other code than 0 is an error, and is not tried again. --workdir must be on storage that all nodes share.
EOF
}

numbered() { # WORD with the number of the array's task for %a
  local rest=$1 before line=""
  while [[ $rest == *%a* ]]; do
    before=${rest%%'%a'*} rest=${rest#*'%a'}
    if [[ $rest == [A-Za-z0-9]* ]]; then
      line+="$before%a" # part of a name, such as 50%accuracy
    elif [[ $before == *% ]]; then
      line+="$before"a # %%a
    else
      line+=$before$SLURM_ARRAY_TASK_ID
    fi
  done
  printf '%s' "$line$rest"
}

fail() {
  echo "slurm.sh: $1" >&2
  exit 2
}

codes=$root/launch/exit_codes.py
if [[ ! -f $codes ]]; then fail "there is no $codes: submit from the folder of the checkout."; fi
preempted=$(sed -n 's/^PREEMPTED = \([0-9]*\).*/\1/p' "$codes")

dry_run=0
case ${1:-} in
  -h | --help) usage && exit ;;
  --dry_run) dry_run=1 && shift ;;
esac
if (($# == 0)); then fail "the command is missing: sbatch launch/slurm.sh python -m launch.train --config=… (--help)."; fi

command=("$@")
if [[ ${SLURM_ARRAY_TASK_ID:-} ]]; then
  for i in "${!command[@]}"; do command[i]=$(numbered "${command[i]}" && echo .) && command[i]=${command[i]%.}; done
fi
# A task that was preempted must not have the others killed, which still save; after a crash jax ends the others.
step=(srun --kill-on-bad-exit=0 "${command[@]}")

if ((dry_run)); then
  echo "sbatch launch/slurm.sh ${*@Q}"
  echo "# in the job:"
  echo "${step[*]@Q}"
  echo "# after exit code $preempted:"
  # shellcheck disable=SC2016 # known in the job
  echo 'scontrol requeue "$SLURM_JOB_ID"'
  exit
fi
if [[ -z ${SLURM_JOB_ID:-} ]]; then fail "this is for sbatch: sbatch launch/slurm.sh … (or --dry_run, --help)."; fi

trap : TERM # reaches this shell too where the job is preempted; it waits for the tasks
code=0
"${step[@]}" || code=$?
if ((code == preempted)); then
  if ((${SLURM_RESTART_COUNT:-0} >= most_restarts)); then
    echo "slurm.sh: preempted, but restarted $SLURM_RESTART_COUNT times already (MAX_RESTARTS)." >&2
  else
    echo "slurm.sh: preempted and saved; back into the queue." >&2
    scontrol requeue "$SLURM_JOB_ID"
  fi
fi
exit "$code"
