"""How launch.train ends. launch/tpu_vm.sh and launch/slurm.sh read this file, launch/gke.yaml repeats it (tested)."""

FINISHED = 0
PREEMPTED = 42  # SIGTERM came, all processes saved at the same step: start the same command again, it continues
