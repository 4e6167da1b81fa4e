"""A bounded replay of rollouts for reinforcement learning, in the form that language models need.

    python examples/rollouts.py                        # learns a toy task in some seconds
    python examples/rollouts.py --checkpoint run.state  # goes on where it was interrupted

Actors write answers, token by token, to random prompts, and put each as a rollout of variable
length into a buffer: its tokens, their log-probabilities, the reward, and the version of the policy
that wrote it. The learner takes batches. Writing is slow, so the pool repeats rollouts, evenly and
`MOST_USES` times at most, and lets go of those that are older than `MAX_AGE` batches (some batches
are made ahead, see `prefetch`). The learner weighs each rollout by how likely its own policy is to
write it (a clipped ratio).

The task: answer prompt p with its digit, written p % 4 + 1 times, and an end. The policy is a table
of logits for each prompt and position.
"""

from __future__ import annotations

import argparse
import pickle
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

import pyecho

PROMPTS, LENGTH, TOKENS, END = 10, 6, 11, 10
BATCH, CAPACITY, MOST_USES, MAX_AGE = 16, 64, 8, 24
SPEC = {
    "prompt": pyecho.Field((), "int32"),
    "version": pyecho.Field((), "int32"),
    "reward": pyecho.Field((), "float32"),
    "tokens": pyecho.Field((None,), "int32", max_bytes=4 * LENGTH),
    "logp": pyecho.Field((None,), "float32", max_bytes=4 * LENGTH),
}


class Policy:
    """Logits for each prompt and position. Updates replace the table: actors see a whole one."""

    def __init__(self) -> None:
        self.logits = np.zeros((PROMPTS, LENGTH, TOKENS))
        self.version = 0
        self.baseline = np.zeros(PROMPTS)

    def write(self, rng: np.random.Generator) -> dict:
        """Return a rollout."""
        logits, version = self.logits, self.version
        prompt, tokens, logp = int(rng.integers(PROMPTS)), [], []
        while len(tokens) < LENGTH and END not in tokens:
            p = softmax(logits[prompt, len(tokens)])
            tokens.append(int(rng.choice(TOKENS, p=p)))
            logp.append(np.log(p[tokens[-1]]))
        return {
            "prompt": np.int32(prompt),
            "version": np.int32(version),
            "reward": np.float32(reward_of(prompt, tokens)),
            "tokens": np.array(tokens, np.int32),
            "logp": np.array(logp, np.float32),
        }

    def learn(self, batch: dict, rate: float = 2.0, clip: float = 0.3) -> None:
        """Take a step along the clipped policy gradient."""
        gradient = np.zeros_like(self.logits)
        for row, (prompt, reward) in enumerate(zip(batch["prompt"], batch["reward"], strict=True)):
            gain = reward - self.baseline[prompt]
            self.baseline[prompt] += 0.05 * gain
            tokens, before = batch["tokens"].row(row), batch["logp"].row(row)
            for place, (token, old) in enumerate(zip(tokens, before, strict=True)):
                p = softmax(self.logits[prompt, place])
                ratio = p[token] / np.exp(old)
                if (gain > 0 and ratio > 1 + clip) or (gain < 0 and ratio < 1 - clip):
                    continue  # far enough from the policy that wrote it
                gradient[prompt, place] -= gain * ratio * p
                gradient[prompt, place, token] += gain * ratio
        self.logits = self.logits + rate * gradient / len(batch["prompt"])
        self.version += 1


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities."""
    p = np.exp(logits - logits.max())
    return p / p.sum()


def reward_of(prompt: int, tokens: list[int]) -> float:
    """Return the part of the answer that is right, up to the first wrong token."""
    wanted = [prompt] * (prompt % 4 + 1) + [END]
    right = 0
    while right < len(wanted) and tokens[right : right + 1] == wanted[right : right + 1]:
        right += 1
    return right / len(wanted)


class Run:
    """Policy, buffer and counts, which a checkpoint holds together."""

    def __init__(self, factor: float | pyecho.Adaptive, seed: int = 0) -> None:
        self.policy = Policy()
        self.buffer = pyecho.EchoBuffer(
            SPEC,
            batch_size=BATCH,
            factor=factor,
            shuffle_buffer=CAPACITY,
            seed=seed,
            with_info=True,
        )
        self.seed, self.steps, self.oldest, self.written = seed, 0, 0, 0
        self.uses: Counter[int] = Counter()
        self.saved: dict = {}

    def learn(
        self, rollouts: int, steps: int | None = None, actors: int = 2, seconds: float = 1e-3
    ) -> bool:
        """Learn until so many rollouts were written, in all, and used up; then return True.

        Stops earlier after so many steps in all.
        """
        numbers = iter(range(self.written, rollouts))
        lock, stopped = threading.Lock(), threading.Event()

        def act() -> None:
            while not stopped.is_set():
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                time.sleep(seconds)  # a language model would be at work
                rollout = self.policy.write(np.random.default_rng([self.seed, number]))
                try:
                    self.buffer.put(rollout)
                except pyecho.Closed:
                    return

        def finish() -> None:
            for thread in threads:
                thread.join()
            self.buffer.close()

        threads = [threading.Thread(target=act) for _ in range(actors)]
        ends = threading.Thread(target=finish)
        for thread in (*threads, ends):
            thread.start()
        try:
            for batch, info in self.buffer:
                self.oldest = max(self.oldest, self.policy.version - int(batch["version"].min()))
                self.uses.update(info.source_index.tolist())
                self.policy.learn(batch)
                self.steps += 1
                if self.steps == steps:
                    self.saved = self.state()
                    return False
            return True
        finally:
            stopped.set()
            self.buffer.stop()
            for thread in (*threads, ends):
                thread.join()

    def state(self) -> dict:
        """Return all that a run needs to go on, while actors go on writing."""
        buffer = self.buffer.state_dict()
        own = {name: getattr(self, name) for name in ("steps", "oldest", "uses")}
        return {"own": own, "policy": vars(self.policy).copy(), "buffer": buffer}

    def load(self, state: dict) -> None:
        """Go on from a state. Rollouts that were not in the buffer yet are written again."""
        vars(self).update(state["own"])
        vars(self.policy).update(state["policy"])
        self.buffer.load_state_dict(state["buffer"])
        self.written = state["buffer"]["taken"]

    def __str__(self) -> str:
        """Tell how far it is."""
        uses = self.uses.values()
        return (
            f"{len(uses)} rollouts, {self.steps} steps, {min(uses)} to {max(uses)} uses, at most "
            f"{self.oldest} versions old, reward {self.score():.2f}"
        )

    def score(self, answers: int = 1000) -> float:
        """Return the mean reward of the policy."""
        rng = np.random.default_rng(1)
        return float(np.mean([self.policy.write(rng)["reward"] for _ in range(answers)]))


def main() -> None:
    """Compare a bounded replay with using each rollout once, or train with checkpoints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rollouts", type=int, default=2000, help="default: %(default)s")
    parser.add_argument("--checkpoint", type=Path, help="a file of this program's own")
    options = parser.parse_args()
    replay = pyecho.Adaptive(MOST_USES, max_age=MAX_AGE)
    if options.checkpoint is None:
        for name, factor in (("each once", 1), ("replay", replay)):
            run = Run(factor)
            run.learn(options.rollouts)
            print(f"{name}: {run}")
        return
    done = False
    while not done:  # each part in a buffer of its own, as after a restart
        run = Run(replay)
        if options.checkpoint.exists():
            run.load(pickle.loads(options.checkpoint.read_bytes()))
        done = run.learn(options.rollouts, run.steps + 100)
        if not done:
            options.checkpoint.write_bytes(pickle.dumps(run.saved))
        print(run)


if __name__ == "__main__":
    main()
