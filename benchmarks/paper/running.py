"""Carries out a plan: several processes train, and their results are stored at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import asdict
from typing import Protocol

from paper import worker
from paper.conditions import Job
from paper.network import Line
from paper.plan import EXPECTED_TRIALS, Do, Plan, Setting, chosen_rate, seconds, tune
from paper.store import Store
from paper.train import Result


class Watcher(Protocol):
    """Receives the progress. Several threads may call it."""

    def finished(self, job: Job, result: Result, *, known: bool) -> None:
        """Receive the result of a run; `known` if it was stored before."""

    def passed(self, seconds: float) -> None:
        """Receive the estimated seconds of finished work."""


def run(
    plan: Plan, store: Store, places: worker.Places, *, jobs: int, nice: int, watcher: Watcher
) -> dict[Setting, dict[int, float]]:
    """Tune every setting and run every seed; return the costs of the rates that were tried."""
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=worker.initialize,
        initargs=(places, nice),
    )
    try:
        costs = _untimed(plan, store, pool, jobs, watcher)
        if plan.timed:
            _timed(plan, store, pool, costs, watcher)
        pool.shutdown()
    except BaseException:
        # Loses the runs in progress only; finished runs are in the store.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    return costs


def doing(store: Store, execute: Callable[[Job], Result], watcher: Watcher) -> Do:
    """Return a function that runs a job unless it is in the store, and stores its result."""

    def do(job: Job) -> Result:
        result = store.result_of(job)
        known = result is not None
        if result is None:
            result = execute(job)
            store.keep(job, result)
        watcher.finished(job, result, known=known)
        return result

    return do


def _untimed(
    plan: Plan, store: Store, pool: Executor, jobs: int, watcher: Watcher
) -> dict[Setting, dict[int, float]]:
    do = doing(store, lambda job: pool.submit(worker.execute, job).result(), watcher)
    untimed = set(plan.untimed)

    def settle(setting: Setting) -> dict[int, float]:
        estimate = seconds(setting.job(0.0, 0))
        costs = tune(setting, do)
        watcher.passed(EXPECTED_TRIALS * estimate)
        for seed in plan.seeds if setting in untimed else ():
            do(setting.job(chosen_rate(setting, costs), seed))
            watcher.passed(estimate)
        return costs

    # A thread for each process: the runs of one setting depend on each other.
    threads = ThreadPoolExecutor(jobs, thread_name_prefix="setting")
    try:
        futures = {threads.submit(settle, setting): setting for setting in plan.tuned}
        return {futures[future]: future.result() for future in as_completed(futures)}
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _timed(
    plan: Plan,
    store: Store,
    pool: Executor,
    costs: dict[Setting, dict[int, float]],
    watcher: Watcher,
) -> None:
    """Run the timed jobs one after the other, with the factors taking turns."""
    jobs = [
        setting.job(chosen_rate(setting, costs[setting]), seed, timed=True)
        for seed in plan.seeds
        for setting in plan.timed
    ]
    key = store.key_of_line()
    if (stored := store.get(key)) is None:
        stored = asdict(pool.submit(worker.calibrate).result())
        store.put(key, stored)
    line = Line(**stored)
    do = doing(store, lambda job: pool.submit(worker.execute_timed, job, line).result(), watcher)
    for job in jobs:
        do(job)
        watcher.passed(seconds(job))
