"""The random streams of this package, by name: every generator of random numbers is made here.

A stream is of a seed, a name and up to a few indices (which node, which segment), and any two differ. Nobody
else constructs a generator (`tests/test_random_streams.py`), so that no two purposes draw the same numbers by
accident. Gymnasium seeds its environments (`np_random`) by itself.

Legacy streams are `numpy.random.default_rng([seed, *words, *indices])`, as the traces and splits of boards,
committed figures and shipped agents were drawn. NumPy pads such a list with zeros, so that it is the same
stream with and without zeros at its end: no new stream is made so. `COINCIDING` names those legacy streams
that are equal to other ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RandomStream:
    """A source of random numbers for one purpose, which its name says.

    Attributes
    ----------
    name : str
        The numbers depend on it: no two streams have the same, and it does not change.
    indices : int
        How many indices tell streams of this name apart.
    words : tuple of int or None
        What stands between seed and indices in a legacy stream; None: a stream of today's.
    """

    name: str
    indices: int = 0
    words: tuple[int, ...] | None = None

    def generator(self, seed: int, *indices: int) -> np.random.Generator:
        """Make a new random generator at the beginning of the stream that a seed and indices select.

        Parameters
        ----------
        seed : int
            From 0 to 2**128 - 1; for streams of `FIXED`, a number in the code.
        *indices : int
            As many as `self.indices`, from 0.
        """
        return np.random.default_rng(self.seed_sequence(seed, *indices))

    def seed_sequence(self, seed: int, *indices: int) -> np.random.SeedSequence:
        """Return NumPy's seed sequence for the generator of the stream that a seed and indices select.

        Raises
        ------
        TypeError
            For more or fewer indices than the stream has.
        """
        if len(indices) != self.indices:
            raise TypeError(f"stream {self.name!r} takes {self.indices} indices, not {len(indices)}")
        if self.words is not None:
            return np.random.SeedSequence([seed, *self.words, *indices])
        return np.random.SeedSequence(seed, spawn_key=self._spawn_key(indices))

    def _spawn_key(self, indices: tuple[int, ...]) -> tuple[int, ...]:
        # Of fixed length, as NumPy splits and joins integers into words of 32 bits; and not by `hash`, which
        # differs between processes.
        text = ",".join([self.name, *(str(int(index)) for index in indices)])
        digest = hashlib.sha256(text.encode()).digest()
        return tuple(int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4))


def derive_seeds(lines: Sequence[str], count: int) -> list[int]:
    """Return seeds by the SHA-256 of lines and a number: above all that tables, training and tuning chose."""
    drawn = (hashlib.sha256("\n".join([*lines, str(at)]).encode()).digest() for at in range(count))
    return [2**32 + int.from_bytes(digest[:4]) for digest in drawn]


# Runs: what a policy and a placer draw, and what befalls nodes and jobs.
POLICY = RandomStream("policy", words=(1,))
PLACER = RandomStream("placer", words=(2,))
NODE_FAILURES = RandomStream("node failures", 1, (3,))
LEAF_FAILURES = RandomStream("leaf failures", 1, (4,))
MINIPOD_FAILURES = RandomStream("minipod failures", 1, (5,))
OFFENDING_NODES = RandomStream("offending nodes", 1, (6,))
FAILURE_CAUSES = RandomStream("failure causes", 1, (7,))
SLOW_NODES = RandomStream("slow nodes", 1, (8,))
JOB_FAILURES = RandomStream("job failures", 1, (9,))

# Traces: generators, and what is drawn beside a trace.
HOURLY_ARRIVALS = RandomStream("hourly arrivals", 1, (101,))
ARRIVALS_WITHIN_HOURS = RandomStream("arrivals within hours", 1, (102,))
ARRIVALS = RandomStream("arrivals", words=(103,))
ARRIVAL_HOURS = RandomStream("arrival hours", words=(104,))
TENANT_BURSTS = RandomStream("tenant bursts", words=(105,))
JOB_SIZES = RandomStream("job sizes", words=(110,))
VIRTUAL_CLUSTERS = RandomStream("virtual clusters", words=(111,))
JOB_REQUESTS = RandomStream("job requests", words=(112,))
DURATIONS = RandomStream("durations", 1, (120,))
GPU_TYPES = RandomStream("GPU types", words=(130,))
DEADLINE_SLACKS = RandomStream("deadline slacks", words=(140,))
JOBS_OF_PARTS = RandomStream("jobs of parts", words=(0x9A27,))
MODELS = RandomStream("models", words=(51,))
OUTCOMES = RandomStream("outcomes", words=(52,))
ASKED_DURATIONS = RandomStream("asked durations", words=(53,))
TIME_LIMITS = RandomStream("time limits", words=(54,))
RESAMPLED_WEEKS = RandomStream("resampled weeks", 1)
REMAINING_RUN_TIMES = RandomStream("remaining run times", 1)
LANGUAGE_MODEL_JOBS = RandomStream("language model jobs")
PRIORITIES = RandomStream("priorities")
WRONG_FAMILY = RandomStream("wrong family")

# Learning.
TRAINING_EPISODES = RandomStream("training episodes", words=())
SHARING_REQUESTS = RandomStream("sharing requests", words=())
TRAINING_WINDOWS = RandomStream("training windows", 2, (611,))
EVOLUTION = RandomStream("evolution", words=(613,))
TRAINING_SEGMENTS = RandomStream("training segments", 1, (614,))
COMPARISON = RandomStream("comparison", words=(617,))
RANDOM_EPISODES = RandomStream("random episodes", words=(17,))
AUCTION_UNITS = RandomStream("auction units")

# Boards, benchmarks and experiments.
RANDOM_FIT = RandomStream("random fit of parts")
PLACEMENT_STATES = RandomStream("placement states", 2, ())
PLACEMENT_CHOICES = RandomStream("placement choices", 3, ())
PLACEMENT_SCALE_STATES = RandomStream("placement scale states", 3, ())
BENCHMARK_ACTIONS = RandomStream("benchmark actions")
WRONG_ESTIMATES = RandomStream("wrong estimates")
TUNED_SETTINGS = RandomStream("tuned settings")
CAPACITY_PRICES = RandomStream("capacity prices", 1)
CAPACITY_PLANS = RandomStream("capacity plans", 1)
ROOM_CHECK = RandomStream("room check")
FIRST_EPISODE = RandomStream("first episode")

# No user's seed reaches these.
RATIO_BOOTSTRAP = RandomStream("ratio bootstrap", words=(281,))
CALIBRATION_HALVES = RandomStream("calibration halves", words=(3,))
GAVEL_JOBS = RandomStream("Gavel jobs", words=(7,))
SUBMISSION_JITTER = RandomStream("submission jitter", words=())
QUEUE_PRIORITIES = RandomStream("queue priorities", words=())
FIXED = (RATIO_BOOTSTRAP, CALIBRATION_HALVES, GAVEL_JOBS, SUBMISSION_JITTER, QUEUE_PRIORITIES)
"""Streams of fixed numbers in the code, as of a bootstrap's resamples."""

COINCIDING = (
    *(TRAINING_EPISODES, SHARING_REQUESTS),
    *(PLACEMENT_STATES, PLACEMENT_CHOICES, PLACEMENT_SCALE_STATES),
)
"""Legacy streams that are equal to other legacy ones at some indices. They are never drawn in one run.

Committed agents, best known schedules and figures were found with them.
"""

STREAMS = tuple(value for value in list(globals().values()) if isinstance(value, RandomStream))
"""All streams."""
