"""Four questions, one after the other: python -m bench [--quick]

`cold_start`, `scan_memory`, `cpu_vs_java` and `encode_vs_java`, each in a process of its own. A question that this machine cannot answer
says what is missing; the others are asked all the same, and the exit code is 1. --quick asks about less data, and saves no result.
"""

import subprocess
import sys

from bench import machine

QUESTIONS = {
    "cold_start": ["none"],
    "scan_memory": ["0.25", "16 KiB batches"],
    "cpu_vs_java": ["none", "zstd"],
    "encode_vs_java": ["quick"],
}
"""Arguments with which a question is quick."""


def main(*arguments: str) -> int:
    if arguments not in ((), ("--quick",)):
        sys.exit(__doc__)
    failed = []
    for question, quick in QUESTIONS.items():
        print(f"\n{question}", flush=True)
        command = [sys.executable, "-m", f"bench.{question}", *(quick if arguments else [])]
        if subprocess.run(command, cwd=machine.ROOT, check=False).returncode:
            failed.append(question)
    if failed:
        print(f"\nnot answered: {', '.join(failed)}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
