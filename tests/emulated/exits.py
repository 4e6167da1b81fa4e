"""Ends with uploads under way: `exits.py WAY HOW SEED`."""

import os
import random
import signal
import sys
import threading
import time
import warnings

import torch
from cuda_emulator import control
from schedules import DEVICE, Schedule


def leave(how, schedule):
    if how == "exit":
        sys.exit(0)
    if how == "error":
        raise ArithmeticError("on purpose")
    if how == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    if how == "close":
        schedule.loader.close()
    if how == "fork":
        warnings.simplefilter("ignore")
        if os.fork() == 0:  # PyTorch's tensors on a device end a child that drops them
            os._exit(0)
        assert os.wait()[1] == 0


def main(way, how, seed):
    chance = random.Random(seed)
    schedule = Schedule(seed, way, items=60)
    control.set("delay_us", 20_000)  # so that copies are under way
    iterator = iter(schedule.loader)
    kept = []
    for _ in range(chance.randrange(4)):
        kept.append(schedule.used(next(iterator)))
    torch.cuda._sleep(chance.randrange(20_000_000))
    time.sleep(chance.random() * 0.02)
    if how == "thread":  # that is inside of the loader when the program ends
        threading.Thread(target=lambda: [*iterator], daemon=True).start()
    print("leaving", len(kept), DEVICE, flush=True)
    leave(how, schedule)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
