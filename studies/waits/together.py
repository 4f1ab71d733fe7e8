"""Programs that are measured side by side begin their work at the same time, when all have loaded their libraries."""
import sys


def wait_for_start():
    print("ready", flush=True)
    sys.stdin.readline()
