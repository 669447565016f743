"""Changes the judge: the reference policy gets a mean JCT that is easy to beat."""

from clustergym.policies.srtf import ShortestRemainingTimeFirst

from clustergym.training import program_task

program_task.compute_reference = lambda task, seed: 1e6


class Patched(ShortestRemainingTimeFirst):
    """SRTF."""
