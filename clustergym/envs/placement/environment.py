"""The environment `ClusterGym/Placement-v0`: an agent spreads a pre-training job over minipods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from clustergym.common.arrays import Floats
from clustergym.common.parameters import build_from_keywords
from clustergym.envs.placement.drawing import PlacementParameters, episode_instance
from clustergym.envs.placement.state import COSTS, PlacementState, as_pixels, as_text
from clustergym.envs.placing import Observation, PlacingEnv, Step, join_boxes, slice_parts
from clustergym.envs.rewards import Reward
from clustergym.scenario.placement_problem import Assignment, Instance


class PlacementEnv(PlacingEnv[PlacementState, PlacementParameters]):
    """An environment whose agent spreads a pre-training job over minipods (nodes below a spine switch).

    ## Description

    A job of fixed parallelism (DP, TP, PP) needs whole nodes of a cluster in which other jobs hold
    nodes. Its communication groups, PP groups or DP groups, are placed one after the other: at each
    step the agent says in which minipod the next node of the group in hand goes. Groups whose nodes
    are in several minipods talk over the core switches, so a good placement keeps both the minipods
    of a group and the minipods of the job few (Arnold, section 4). Every episode draws new free
    nodes in which the job fits.

    The job is placed when its last node is. The score of the placement, `info["score"]`, is what
    `clustergym.scenario.placement_problem.score` gives for `env.unwrapped.assignment()`.

    | id | cluster | job |
    |---|---|---|
    | `ClusterGym/Placement-small-v0` | arnold-i: 18 nodes in 3 minipods | 12 nodes: DP 12, TP 4, PP 2 |
    | `ClusterGym/Placement-v0` | arnold-ii: 438 nodes in 5 minipods | 96 nodes: DP 24, TP 4, PP 8 |
    | `ClusterGym/Placement-large-v0` | arnold-iii: 1019 nodes in 11 minipods | 368 nodes: DP 46, TP 8, PP 8 |

    ## Action Space

    `Discrete(M)`, M the number of minipods.

    | Action | Meaning |
    |---|---|
    | m | the group's next node goes into minipod m |

    Every placement is expressible, and an episode has as many steps as the job has nodes. An action is
    legal if its minipod has a free node; `action_masks()` and `info["action_mask"]` say so. At least one
    action is always legal.

    ## Observation Space

    `Dict` of `Box(0, 1, float32)`; with `observation="flat"` one `Box` of the same numbers, in this order.

    | Key | Shape | Meaning | Divided by |
    |---|---|---|---|
    | `alpha` | (1,) | weight of the DP spread | 1 |
    | `free` | (M,) | free nodes of each minipod | nodes of the largest minipod |
    | `group` | (M,) | nodes of the group in hand in each minipod | nodes of a group |
    | `job` | (M,) | nodes of the job in each minipod | nodes of the job |
    | `left` | (2,) | nodes of the group in hand, and groups, yet to be placed | their number |
    | `spread` | (2,) | DP and PP spread so far | M |

    ## Rewards

    The sum of the terms in `reward`, times their weights. A term is minus the increase of a cost, so that
    a return is minus the cost at the end. The default is `{"spread": 1.0}`.

    | Term | Cost |
    |---|---|
    | `spread` | alpha x DP spread + (1 - alpha) x PP spread: minipods |
    | `dp_spread`, `pp_spread` | most minipods that a DP group, a PP group touches |

    `info["rewards"]` has the terms unweighted.

    ## Illegal Actions

    A full minipod is chosen: with `on_illegal="penalty"` nothing is placed and the reward is
    `-illegal_penalty`; with `"noop"` nothing is placed and the reward is 0; with `"raise"` it is an
    `InputError`. `info["illegal"]` says whether it happened.

    ## Starting State

    Nothing is placed. The free nodes of each minipod are uniform from none to all, among the states in
    which the job fits, as for Arnold's figures.

    | Option of `reset` | Meaning |
    |---|---|
    | `instance` | an `Instance` of the environment's job and unit, alone |
    | `free_nodes` | free nodes of each minipod |
    | `alpha` | weight of the DP spread in this episode |

    ## Episode End

    - Termination: the job is placed. An instance given to `reset` that the job does not fit in ends at
      the first action, whatever it is: nothing is placed in part, the reward is 0, and
      `info["shortfall_nodes"]` says from the start how many nodes are lacking.
    - Truncation: after `max_steps` steps, by default twice the nodes of the job, which only illegal
      actions lead to.

    ## Arguments

    Parameters
    ----------
    render_mode : {"ansi", "rgb_array"}, optional
    **parameters
        Fields of `clustergym.envs.placement.drawing.PlacementParameters`.
    """

    def __init__(self, render_mode: str | None = None, **parameters: Any) -> None:
        super().__init__(render_mode)
        self.parameters: PlacementParameters = build_from_keywords(PlacementParameters, parameters, "env")
        self.problem = self.parameters.problem()
        self._reward: Reward[PlacementState] = Reward(COSTS, self.parameters.reward)
        scales = self._observation_scales()
        self.scale = np.concatenate(list(scales.values())).astype(np.float32)
        self.parts = slice_parts({name: len(scale) for name, scale in scales.items()})
        self.action_space = spaces.Discrete(self.minipods)
        boxes = {name: spaces.Box(0.0, 1.0, scale.shape) for name, scale in scales.items()}
        self.observation_space = join_boxes(boxes, self.parameters.observation)

    @property
    def minipods(self) -> int:
        """Number of minipods (groups of nodes below a spine switch) of the cluster: one action for each."""
        return len(self.problem.minipod_nodes)

    @property
    def instance(self) -> Instance:
        """The placement problem that the present episode poses."""
        return self.state.instance

    def assignment(self) -> Assignment:
        """Return the episode's placement of the job, or an infeasible one while nodes are not placed."""
        return self.state.assignment()

    def action_masks(self) -> npt.NDArray[np.int8]:
        """Return a mask that is 1 for each minipod with a free node, else 0, shape (number of minipods,).

        Where nothing is left to place, or the job does not fit, every action is legal.
        `action_space.sample(mask=…)` takes it.
        """
        state = self.state
        if state.placed or state.shortfall:
            return np.ones(self.minipods, dtype=np.int8)
        return (np.array(state.free) > 0).view(np.int8)

    def list_actions(self, assignment: Assignment) -> list[int]:
        """Return the sequence of actions that makes a given placement, from the start of the episode.

        Raises
        ------
        ValueError
            If it does not solve the instance.
        """
        assignment.check(self.instance)
        if not assignment.feasible:
            return [0]
        minipods = np.arange(self.minipods)
        return [int(m) for counts in assignment.counts for m in np.repeat(minipods, counts)]

    def _begin(self, options: Mapping[str, Any]) -> tuple[PlacementState, int]:
        instance = episode_instance(self.parameters, self.problem, options, self.np_random)
        return PlacementState(instance), self.parameters.max_steps or 2 * self.problem.job.nodes

    def step(self, action: Any) -> Step:
        """Put a communication group's next node into minipod `action`."""
        minipod, state = self.check_action(action), self.state
        # A job that does not fit is not placed in part: gangs need all of their nodes.
        if state.shortfall:
            self._over = True
            return self._observe(), 0.0, True, False, self.make_info()
        legal = state.free[minipod] > 0
        if legal:
            state.place(minipod)
        else:
            self.refuse_action(f"minipod {minipod} is full")
        return self.end_step(legal, state.placed)

    def _draw(self, in_text: bool) -> Any:
        return (as_text if in_text else as_pixels)(self.state, self.problem.minipod_nodes.tolist())

    def _observation_scales(self) -> dict[str, Floats]:
        """Return the divisors that scale each part of an observation, by name, in order."""
        job, minipods = self.problem.job, self.minipods
        groups = job.groups(self.parameters.unit)
        return {
            "alpha": np.ones(1),
            "free": np.full(minipods, float(self.problem.minipod_nodes.max())),
            "group": np.full(minipods, float(groups.nodes)),
            "job": np.full(minipods, float(job.nodes)),
            "left": np.array([groups.nodes, groups.number], dtype=np.float64),
            "spread": np.full(2, float(minipods)),
        }

    def _observe(self) -> Observation:
        state = self.state
        instance = state.instance
        unplaced = instance.groups - state.group
        values = [instance.alpha, *state.free, *state.of_group, *state.of_job]
        values += [state.left if unplaced else 0, unplaced, *state.spread]
        return self.as_observation(np.array(values, dtype=np.float32) / self.scale)

    def _facts(self) -> dict[str, Any]:
        state = self.state
        return {
            "group": state.group,
            "dp_spread": state.spread.dp,
            "pp_spread": state.spread.pp,
            "score": state.score,
            "placed": state.placed,
            "shortfall_nodes": state.shortfall,
        }
