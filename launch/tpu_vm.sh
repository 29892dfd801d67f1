#!/usr/bin/env bash
# Training on Cloud TPU VMs, one or all workers of a pod: see --help.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
preempted=$(sed -n 's/^PREEMPTED = \([0-9]*\).*/\1/p' "$here/exit_codes.py")
patience=10 # failures in a row after which a query is given up

usage() {
  cat <<EOF
usage: launch/tpu_vm.sh SUBCOMMAND --name=NAME --zone=ZONE [flags] [-- COMMAND …]

  create   asks for a TPU as a queued resource and waits until it is there
  setup    exchanges SSH keys with every worker, copies the files of this checkout that git knows (as they are, committed or
           not) to all, installs Python by uv and the package
  run      starts COMMAND on all workers, detached: it goes on when the connection is lost
  logs     the last lines of every worker; --follow those of one (--worker, default 0) as they come
  status   the state of the TPU, and of the run on each worker: running, or its exit code
  stop     SIGTERM to the run on all workers: it saves, and ends with exit code $preempted. The TPU stays, and costs
  delete   deletes the TPU
  retry    create, setup, run, wait, save the logs, delete; again after a preemption until the run ends with 0

  --name=NAME             of the TPU and its queued resource
  --zone=ZONE             such as us-east5-a
  --project=PROJECT       default: that of gcloud
  --type=TYPE             create, retry: accelerator type, such as v6e-16, v5p-32, v5litepod-8, v4-32
  --runtime=VERSION       create, retry: default by type. The image's Python is too old, setup brings its own
  --spot                  create, retry: cheaper, and may be taken away at any time
  --create_flag=FLAG      create, retry: passed on to gcloud, such as --create_flag=--reserved; repeatable
  --ssh_flag=FLAG         passed on to every gcloud ssh and scp, such as --ssh_flag=--internal-ip; repeatable
  --python=VERSION        setup, retry: default 3.11
  --workers=N             setup, retry: default: as many as gcloud tells
  --worker=I              logs: one worker, or "all" (default; --follow: 0)
  --lines=N, --follow     logs: default the last 50 lines
  --logs=DIR              retry: where logs are saved, default runs/NAME-logs; DIR/ATTEMPT/WORKER.log
  --attempts=N            retry: at most so many TPUs, default 100
  --poll=SECONDS          create, retry: between two queries, default 30
  --dry_run               print the commands, which a shell can run, instead of running them

Training ends with exit code 0 when it is finished, and with $preempted when it was preempted and has saved: then, and when the TPU
itself was taken away, retry makes a new one and the same COMMAND continues. Any other code is an error: it is not tried
again, the TPU is deleted, and retry ends with that code. Run retry where it is not cut off: in tmux on a small VM.

Checkpoints must be where every worker, and the next TPU, finds them: --workdir=gs://BUCKET/RUN.

  launch/tpu_vm.sh retry --name=vit --zone=us-east5-a --type=v6e-16 --spot -- \\
    python -m launch.train --config=configs/NAME.py --workdir=gs://BUCKET/vit

TPU7x (Ironwood) is not served as TPU VMs, but by GKE: launch/gke.yaml.
EOF
}

fail() { # SENTENCE [EXIT CODE]
  echo "tpu_vm.sh: $1" >&2
  exit "${2:-2}"
}

quoted() { # the arguments as one line that a shell reads back as the same words
  local word line="" escaped="'\\''"
  for word in "$@"; do
    if [[ $word =~ ^[A-Za-z0-9_./:=@%+,-]+$ ]]; then line+=" $word"; else line+=" '${word//"'"/"$escaped"}'"; fi
  done
  printf '%s' "${line# }"
}

call() { # runs the arguments, or prints them
  if ((dry_run)); then
    quoted "$@" && echo
    return
  fi
  echo "+ $(quoted "$@")" >&2
  "$@"
}

remark() { # what a dry run cannot show as a command
  if ((dry_run)); then echo "# $1"; fi
}

on_workers() { # WHICH COMMAND [FLAG …]
  call gcloud compute tpus tpu-vm ssh "$name" "${where[@]}" --quiet --worker="$1" --command="$2" "${@:3}" "${ssh_flags[@]}"
}

# --- on each worker: ~/limit-zoo is the checkout, ~/limit-zoo-run holds log, pid and exit_code of the run

remote_setup() {
  cat <<EOF
set -eu
mkdir -p ~/limit-zoo && cd ~/limit-zoo && tar -xzf ~/limit-zoo.tar.gz
rm -f ~/limit-zoo.tar.gz
export PATH="\$HOME/.local/bin:\$PATH"
command -v uv > /dev/null || python3 -m pip install --user --quiet uv
uv venv --quiet --allow-existing --python=$(quoted "$python") .venv
uv pip install --quiet --python=.venv/bin/python -e ".[tpu]" gcsfs -c constraints.txt
EOF
}

# pid holds the number of the process, the boot of the machine and the clock tick at which it was started: another process
# that has the number later, as after a restart, is not taken for the run.
# shellcheck disable=SC2016 # to be expanded on the worker
remote_runs='started() { echo "$(cat /proc/sys/kernel/random/boot_id) $(sed "s/.*) //" "/proc/$1/stat" | cut -d" " -f20)"; }
runs() { [ -f pid ] && read -r pid since < pid && [ -n "$since" ] && [ "$since" = "$(started "$pid" 2> /dev/null)" ]; }'

remote_run() { # COMMAND …
  printf '%s\n' "$remote_runs"
  cat <<'EOF'
set -eu
mkdir -p ~/limit-zoo-run && cd ~/limit-zoo-run
if [ ! -f exit_code ] && runs; then
  echo "A run goes on already on $(hostname): stop it first." >&2; exit 3
fi
[ -x ~/limit-zoo/.venv/bin/python ] || { echo "$(hostname) is not set up: launch/tpu_vm.sh setup first." >&2; exit 4; }
rm -f pid exit_code
# The trap: a machine that shuts down sends SIGTERM to all, and the exit code is to be written after that. The exec: stop
# reaches the program itself, and none of the processes that it started.
cat > start <<'END'
trap : HUP INT TERM
bash -c 'echo "$$ $(started $$)" > ~/limit-zoo-run/pid; exec "$@"' run "$@" >> ~/limit-zoo-run/log 2>&1
echo $? > ~/limit-zoo-run/exit_code
END
export -f started
cd ~/limit-zoo
export PATH="$HOME/limit-zoo/.venv/bin:$PATH" PYTHONUNBUFFERED=1
EOF
  cat <<EOF
nohup setsid bash ~/limit-zoo-run/start $(quoted "$@") < /dev/null > /dev/null 2>&1 &
for _ in 1 2 3 4 5 6 7 8 9 10; do [ -s ~/limit-zoo-run/pid ] && break; sleep 0.2; done
EOF
}

# "lost": neither running nor ended, as after a restart of the machine
# shellcheck disable=SC2016 # to be expanded on the worker
remote_status="$remote_runs"'
cd ~/limit-zoo-run 2> /dev/null || { echo "$(hostname): nothing started"; exit; }
runs || [ -f exit_code ] || sleep 1
if [ -f exit_code ]; then echo "$(hostname): exit code $(cat exit_code)"
elif runs; then echo "$(hostname): running"
else echo "$(hostname): lost"; fi'

# --- subcommands

resource_state() {
  call gcloud compute tpus queued-resources describe "$name" "${where[@]}" --format='value(state.state)'
}

node_state() {
  call gcloud compute tpus tpu-vm describe "$name" "${where[@]}" --format='value(state)'
}

runtime_of() { # TYPE
  case $1 in
    v6e-*) echo v2-alpha-tpuv6e ;;
    v5p-*) echo v2-alpha-tpuv5 ;;
    v5litepod-*) echo v2-alpha-tpuv5-lite ;;
    *) echo tpu-ubuntu2204-base ;;
  esac
}

create() {
  request && wait_until_active
}

request() {
  local request=(gcloud compute tpus queued-resources create "$name" --node-id="$name" "${where[@]}" --quiet --async)
  request+=(--accelerator-type="$type" --runtime-version="${runtime:-$(runtime_of "$type")}")
  if ((spot)); then request+=(--spot); fi
  call "${request[@]}" "${create_flags[@]}"
}

wait_until_active() { # ends with $preempted where the TPU is taken away before it is there
  local state known="" failures=0
  remark "until it prints ACTIVE:"
  while true; do
    if ((dry_run)); then
      resource_state
      return
    fi
    state=$(resource_state 2> /dev/null) || state=""
    if [[ $state != "$known" ]]; then echo "$name: ${state:-unknown}" >&2; fi
    known=$state
    case $state in
      ACTIVE) return 0 ;;
      SUSPENDING | SUSPENDED) return "$preempted" ;;
      FAILED)
        echo "tpu_vm.sh: the request for $name failed: gcloud compute tpus queued-resources describe $name tells why." >&2
        return 1
        ;;
      "") failures=$((failures + 1)) ;;
      *) failures=0 ;;
    esac
    if ((failures >= patience)); then
      echo "tpu_vm.sh: the state of $name could not be asked for, $failures times in a row." >&2
      return 1
    fi
    sleep "$poll"
  done
}

setup() {
  local i count=$workers
  local ask=(gcloud compute tpus tpu-vm describe "$name" "${where[@]}" --format='value(networkEndpoints.len())')
  if [[ -z $count ]]; then
    if ((dry_run)); then
      remark "for each worker of as many as this prints (or --workers=N); shown for worker 0:"
      call "${ask[@]}"
      count=1
    else
      count=$(call "${ask[@]}") || return
    fi
  fi
  # the first connection exchanges keys, and --worker=all fails where it has not been made
  for ((i = 0; i < count; i++)); do on_workers "$i" true || return; done
  if ((dry_run)); then pack_dry; else pack; fi || return
  on_workers all "$(remote_setup)"
}

files() { # of the checkout, with NUL after each: those that git knows and that are there; without git those of the package
  if git -C "$root" rev-parse --is-inside-work-tree > /dev/null 2>&1; then
    git -C "$root" ls-files -z | while IFS= read -r -d '' file; do
      if [[ -e $root/$file || -L $root/$file ]]; then printf '%s\0' "$file"; fi
    done
  else
    printf '%s\0' zoo limits train launch configs pyproject.toml constraints.txt README.md LICENSE
  fi
}

pack() ( # a subshell: whatever ends it, the files are removed
  packed=$(mktemp -d "${TMPDIR:-/tmp}/limit-zoo.XXXXXXXXXX") || exit # only its owner may read what is in it
  trap 'rm -rf "$packed"' EXIT
  trap 'exit 130' INT TERM
  files > "$packed/files" || exit
  send
)

send() { # what is listed in $packed/files, to all workers
  local archive="$packed/limit-zoo.tar.gz"
  call tar -czf "$archive" -C "$root" --exclude=__pycache__ --null -T "$packed/files" || return
  call gcloud compute tpus tpu-vm scp "$archive" "$name:limit-zoo.tar.gz" "${where[@]}" --quiet --worker=all "${ssh_flags[@]}"
}

pack_dry() { # the same as lines for a shell
  # shellcheck disable=SC2016,SC2034 # for that shell
  local packed='$packed'
  # shellcheck disable=SC2016
  echo 'packed=$(mktemp -d "${TMPDIR:-/tmp}/limit-zoo.XXXXXXXXXX")'
  # shellcheck disable=SC2016
  echo "git -C $(quoted "$root")"' ls-files -z > "$packed/files"'
  send | sed "s|'\(\$packed[^']*\)'|\"\1\"|g"
  # shellcheck disable=SC2016
  echo 'rm -rf "$packed"'
}

run() {
  if [[ $(quoted "$@") != *--workdir=gs://* ]]; then
    echo "tpu_vm.sh: without --workdir=gs://… checkpoints stay on the workers: each writes its own, and they go with the TPU." >&2
  fi
  on_workers all "$(remote_run "$@")"
}

logs() {
  local show="tail -n $lines"
  if ((follow)); then show+=" -F"; fi
  on_workers "${worker:-$( ((follow)) && echo 0 || echo all)}" "$show ~/limit-zoo-run/log | sed -u \"s/^/[\$(hostname)] /\""
}

status() {
  resource_state
  on_workers all "$remote_status"
}

stop() {
  # shellcheck disable=SC2016 # to be expanded on the worker
  on_workers all "$remote_runs"'
cd ~/limit-zoo-run 2> /dev/null && [ ! -f exit_code ] && runs || { echo "$(hostname): nothing runs" >&2; exit 1; }
kill -TERM "$pid"'
}

delete() {
  call gcloud compute tpus queued-resources delete "$name" "${where[@]}" --quiet --force
}

# --- retry

taken_away() {
  local state
  state=$(resource_state 2> /dev/null) || state=""
  if [[ $state == SUSPEND* ]]; then return 0; fi
  state=$(node_state 2> /dev/null) || state=""
  [[ $state == PREEMPTED || $state == TERMINATED || $state == STOPP* ]]
}

verdict() { # REPORT: the exit code of the run as a whole
  local codes code
  if grep -q ': lost$' <<< "$1"; then return "$preempted"; fi
  codes=$(sed -n 's/.*: exit code \([0-9]*\)$/\1/p' <<< "$1")
  if grep -qx "$preempted" <<< "$codes"; then return "$preempted"; fi
  for code in $codes; do
    if ((code != 0)); then
      # a worker that vanishes takes the others down with errors
      if taken_away; then return "$preempted"; fi
      return "$code"
    fi
  done
}

wait_for_end() { # ends with the exit code of the run
  local report failures=0 waited=0
  remark "until all workers have ended:"
  while true; do
    if ((dry_run)); then
      on_workers all "$remote_status"
      return
    fi
    sleep "$poll"
    if ! report=$(on_workers all "$remote_status" 2> /dev/null); then
      if taken_away; then return "$preempted"; fi
      failures=$((failures + 1))
      if ((failures < patience)); then continue; fi
      echo "tpu_vm.sh: the workers of $name could not be reached, $failures times in a row." >&2
      return 255
    fi
    failures=0
    if grep -q 'nothing started$' <<< "$report"; then
      echo "tpu_vm.sh: on some worker of $name nothing was started:"$'\n'"$report" >&2
      return 1
    fi
    if grep -q ': running$' <<< "$report"; then
      # one has failed and others go on: jax ends them within two minutes
      if ! grep -qE ': (exit code [1-9]|lost)' <<< "$report"; then continue; fi
      waited=$((waited + 1))
      if ((waited < patience)); then continue; fi
    fi
    echo "$report" >&2
    verdict "$report"
    return
  done
}

attempt() { # NUMBER COMMAND …
  local code=0 folder="${logs_folder:-runs/$name-logs}/$1"
  wait_until_active || code=$?
  if ((code == 0)); then setup || code=$?; fi
  if ((code == 0)); then run "${@:2}" || code=$?; fi
  if ((code == 0)); then
    wait_for_end || code=$?
    call mkdir -p "$folder"
    on_workers all 'cat ~/limit-zoo-run/log' --output-directory="$folder" ||
      echo "tpu_vm.sh: the logs of attempt $1 could not be saved." >&2
  elif ((code != preempted)) && taken_away; then
    code=$preempted
  fi
  return "$code"
}

retry() { # COMMAND …
  local number code
  trap 'fail "interrupted. $name may still be there, and cost: launch/tpu_vm.sh delete --name=$name --zone=$zone" 130' INT TERM
  for ((number = 1; number <= attempts; number++)); do
    code=0
    request || return # nothing is deleted: a TPU of this name may be there for another purpose
    attempt "$number" "$@" || code=$?
    delete || fail "$name could not be deleted, and costs: delete it by hand. The run ended with exit code $code." 1
    remark "again while the run ends with $preempted, or the TPU is taken away"
    if ((code != preempted)); then
      if ((code)); then echo "tpu_vm.sh: an error, exit code $code; not tried again." >&2; fi
      return "$code"
    fi
    echo "tpu_vm.sh: preempted (attempt $number of $attempts)." >&2
    if ((number < attempts)); then sleep "$poll"; fi
  done
  return "$preempted"
}

# --- arguments

name="" zone="" project="" type="" runtime="" python=3.11 workers="" worker="" lines=50 logs_folder="" attempts=100 poll=30
spot=0 dry_run=0 follow=0
create_flags=() ssh_flags=() command=()

if (($# == 0)); then usage >&2 && exit 2; fi
subcommand=$1 && shift
case $subcommand in
  -h | --help | help) usage && exit ;;
  create | setup | run | logs | status | stop | delete | retry) ;;
  *) fail "there is no subcommand \"$subcommand\": create, setup, run, logs, status, stop, delete or retry (--help)." ;;
esac

while (($#)); do
  case $1 in
    --name=*) name=${1#*=} ;;
    --zone=*) zone=${1#*=} ;;
    --project=*) project=${1#*=} ;;
    --type=*) type=${1#*=} ;;
    --runtime=*) runtime=${1#*=} ;;
    --python=*) python=${1#*=} ;;
    --workers=*) workers=${1#*=} ;;
    --worker=*) worker=${1#*=} ;;
    --lines=*) lines=${1#*=} ;;
    --logs=*) logs_folder=${1#*=} ;;
    --attempts=*) attempts=${1#*=} ;;
    --poll=*) poll=${1#*=} ;;
    --create_flag=*) create_flags+=("${1#*=}") ;;
    --ssh_flag=*) ssh_flags+=("${1#*=}") ;;
    --spot) spot=1 ;;
    --follow) follow=1 ;;
    --dry_run) dry_run=1 ;;
    -h | --help) usage && exit ;;
    --) shift && command=("$@") && break ;;
    *) fail "unknown argument \"$1\": flags are written --name=VALUE, the command follows -- (--help)." ;;
  esac
  shift
done

if ! [[ $poll =~ ^[0-9]+([.][0-9]+)?$ ]]; then fail "--poll is a number of seconds; got \"$poll\"."; fi
if [[ -z $name || -z $zone ]]; then fail "--name=NAME and --zone=ZONE are needed (--help)."; fi
for number in "$lines" "$attempts" "${workers:-1}"; do
  if ! [[ $number =~ ^[1-9][0-9]*$ ]]; then fail "--lines, --attempts and --workers are whole numbers from 1; got \"$number\"."; fi
done
where=(--zone="$zone")
if [[ $project ]]; then where+=(--project="$project"); fi
case $subcommand in
  create | retry)
    if [[ -z $type ]]; then fail "--type=TYPE is needed, such as --type=v6e-16."; fi
    if [[ $type == tpu7x* || $type == v7* ]]; then fail "TPU7x is not served as TPU VMs, but by GKE: launch/gke.yaml."; fi
    ;;
esac
case $subcommand in
  run | retry)
    if ((${#command[@]} == 0)); then fail "the command is missing: … -- python -m launch.train --config=…"; fi
    if [[ ${command[0]} == -* ]]; then fail "what follows -- is a command, such as python -m launch.train; got \"${command[0]}\"."; fi
    ;;
esac
if ! ((dry_run)) && ! command -v gcloud > /dev/null; then fail "there is no gcloud on PATH: install the Google Cloud CLI" 127; fi

code=0
case $subcommand in
  create) create || code=$? ;;
  setup) setup || code=$? ;;
  run) run "${command[@]}" || code=$? ;;
  logs) logs || code=$? ;;
  status) status || code=$? ;;
  stop) stop || code=$? ;;
  delete) delete || code=$? ;;
  retry) retry "${command[@]}" || code=$? ;;
esac
exit "$code"
