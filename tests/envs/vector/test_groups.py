"""Groups of rollouts of the same trace."""

import numpy as np
import pytest

from clustergym.common.errors import InputError
from clustergym.envs.families import ElasticEnv
from clustergym.envs.vector.environment import SchedulingVectorEnv
from clustergym.envs.vector.groups import groups, relative_to_group


def test_environments_of_a_group_begin_the_same_trace() -> None:
    envs = SchedulingVectorEnv(ElasticEnv, 6, cluster="arena-16", jobs=6, rows=4, observation="flat")
    seen, info = envs.reset(options=groups([3, 5], 3))
    for first in (0, 3):
        for row in (1, 2):
            np.testing.assert_array_equal(seen[first + row], seen[first])
            np.testing.assert_array_equal(info["action_mask"][first + row], info["action_mask"][first])
    assert (seen[0] != seen[3]).any()
    single = ElasticEnv(cluster="arena-16", jobs=6, rows=4, observation="flat")
    np.testing.assert_array_equal(single.reset(options={"trace_seed": 5})[0], seen[5])


def test_returns_are_compared_within_their_group() -> None:
    # 1, 2, 3 deviate by sqrt(2 / 3) from their mean, 2; the second group's returns are equal.
    relative = relative_to_group([1.0, 2.0, 3.0, 7.0, 7.0, 7.0], 3)
    np.testing.assert_allclose(relative, [-(1.5**0.5), 0.0, 1.5**0.5, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(("seeds", "size"), [([], 2), ([1], 0)])
def test_empty_groups_are_refused(seeds: list[int], size: int) -> None:
    with pytest.raises(InputError, match="groups: "):
        groups(seeds, size)
