"""The console script: limit-zoo COMMAND [flags]."""

import importlib
import sys

from zoo.messages import did_you_mean

COMMANDS = {
    "train": "train a network, or an ensemble of them, from a laptop to a pod; continues after a preemption",
    "sample": "write on from a prompt with a GPT that train has trained",
    "compare": "train ensembles over widths and depths and compare them with their twins",
    "transfer": "sweep learning rates over widths and depths: where the optimum lies, and what its shift costs",
    "predict": "from these sweeps: what a larger size will reach, at which learning rate, and how sure that is",
    "reproduce": "repeat a figure of a paper and check its claims; --list shows them",
    "pack": "make one archive of a folder of results, to hand on",
    "unpack": "check such an archive and write its files into a new folder",
    "local_cluster": "run a command as several processes on this machine, as on the hosts of a pod",
    "analyze": "look into trained networks from their checkpoints: kernels, alignment, spectra, sharpness, the twin",
    "limit": "compute a twin alone: kernels and lazy training",
    "bench": "time the kernels and tangent kernels, side by side with neural-tangents where it is installed",
}


def main() -> None:
    """Runs `launch.COMMAND` with the remaining arguments."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help", "help"):
        lines = "\n".join(f"  {name:10s} {text}" for name, text in COMMANDS.items())
        print(
            f"usage: limit-zoo COMMAND [--config=NAME] [flags]\n\n{lines}\n\n`limit-zoo COMMAND --help` lists a command's flags."
        )
        raise SystemExit(0 if len(sys.argv) > 1 else 2)
    command = sys.argv.pop(1)
    if command not in COMMANDS:
        raise SystemExit(f'limit-zoo: unknown command "{command}". {did_you_mean(command, COMMANDS)}')
    module = importlib.import_module(f"launch.{command}")
    sys.argv[0] = f"limit-zoo {command}"
    module.run()


if __name__ == "__main__":
    main()
