"""Policies that say that they are consistent, or that they only start jobs, are so on drawn Views."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from random_views import random_views

from clustergym.scenario.policy import QUEUED, RUNNING, Decision
from clustergym.scenario.registry import parse_policy

WITHIN = ("fcfs", "fcfs queue=cluster", "fcfs backfill=aggressive", "ares", "ares alpha=0.4")


def decided(within, view):
    policy = parse_policy(within, "policy")
    assert policy.consistent
    policy.reset(view.setting, np.random.default_rng(0))
    return policy, policy.schedule(view)


def held(decision):
    return sorted(zip(decision.job.tolist(), decision.gpu_type.tolist(), decision.gpus.tolist(), strict=True))


def carried_out(view, decision):
    gpus, kind = np.zeros_like(view.gpus), np.full_like(view.gpu_type, -1)
    at = np.searchsorted(view.job, decision.job)
    gpus[at], kind[at] = decision.gpus, decision.gpu_type
    state = np.where(gpus > 0, RUNNING, QUEUED)
    used = np.bincount(decision.gpu_type, decision.gpus, len(view.available)).astype(np.int64)
    return replace(view, gpus=gpus, gpu_type=kind, state=state, free=view.available - used)


@settings(max_examples=150, deadline=None)
@given(random_views(), st.sampled_from(WITHIN), st.integers(0, 2**32 - 1))
def test_idle_gpus_and_what_was_just_decided_change_no_decision(view, within, seed):
    _, decision = decided(within, view)
    assert held(decided(within, carried_out(view, decision))[1]) == held(decision)
    holds = view.available - view.free
    used = np.bincount(decision.gpu_type, decision.gpus, len(view.available)).astype(np.int64)
    least = np.maximum(used, holds)
    fewer = least + np.random.default_rng(seed).integers(0, view.available - least + 1)
    assert held(decided(within, replace(view, available=fewer, free=fewer - holds))[1]) == held(decision)


@settings(max_examples=100, deadline=None)
@given(random_views(), st.sampled_from(WITHIN))
def test_who_only_starts_changes_nothing_where_no_request_fits(view, within):
    full = replace(view, available=view.available - view.free, free=np.zeros_like(view.free))
    policy, decision = decided(within, full)
    if policy.only_starts:
        assert held(decision) == held(Decision.keep(view))
