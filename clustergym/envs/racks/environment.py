"""The environments `Rack-576-v0` and `Rack-told-v0`: gangs in racks of 72 GPUs, placed and moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from clustergym.common.parameters import build_from_keywords
from clustergym.envs.placing import Observation, PlacingEnv, Step, join_boxes, slice_parts
from clustergym.envs.racks.gangs import SIZES, RackParameters, episode_gangs
from clustergym.envs.racks.state import COSTS, SLOTS, RackState, as_pixels, as_text, observe
from clustergym.envs.rewards import Reward


class RackEnv(PlacingEnv[RackState, RackParameters]):
    """An environment whose agent places multi-GPU jobs in NVLink racks, moves them, or lets them wait.

    ## Description

    Gangs come to eight racks of 18 trays of four GB200. A gang has one, two or four segments of 1 to 16
    trays, and each segment has to lie in one rack; of a rack's trays a gang has 16 at most. Whenever a gang
    comes or ends, those that wait are offered one after the other, the first to come first, if they have room
    or others could move. The agent says in which rack the next segment goes, which rack a running gang leaves
    to make room, or that the gang waits. When its last segment is placed a gang starts, and runs for a time
    that nobody knows before; in `Rack-told` it tells one when it comes, which is wrong by some 5 %. A move
    costs the gang that moves a restart, and there are only so many in an hour. Racks that are left whole for
    large gangs let them start earlier.

    Numbers of racks and trays are those of the GB200 of the world `llm-2026`; sizes and durations of gangs
    are assumed (`clustergym.envs.racks.gangs`).

    | id | racks | GPUs |
    |---|---|---|
    | `ClusterGym/Rack-576-v0` | 8 | 576 |
    | `ClusterGym/Rack-told-v0` | 8 | 576 |

    ## Action Space

    `Discrete(2 R + 1)`, R the number of racks.

    | Action | Meaning |
    |---|---|
    | r | the next segment of the gang goes in rack r |
    | R + r | of the gangs that lie wholly in rack r the smallest for which another has room leaves it |
    | 2 R | the gang waits until something else comes or ends |

    Who leaves a rack goes to the rack with the fewest free trays that suffice. A rack is legal if it has room
    for the segment, and all others of the gang have room, too; a move if the gang has no room, and moves are
    left; waiting if no segment of the gang is placed, and something else is still to come or to end.
    `action_masks()` and `info["action_mask"]` say so. At least one action is always legal.

    ## Observation Space

    `Dict` of `Box(0, 1, float32)`; with `observation="flat"` one `Box` of the same numbers, in this order.

    | Key | Shape | Meaning | Divided by |
    |---|---|---|---|
    | `free` | (R,) | free trays of each rack | trays of a rack |
    | `gang` | (3,) | trays of a segment; segments to place; hours waited, x / (1 + x) | trays; 4 |
    | `leaves` | (R,) | trays of the gang that would leave each rack; 0: there is none | trays of a rack |
    | `moves` | (1,) | moves left | those of an hour |
    | `own` | (R,) | trays of the gang in each rack | trays of a rack |
    | `queue` | (6,) | gangs that wait, x / (10 + x); their trays by size of segment, x / (a rack's + x) | |

    Where gangs tell how long they will run (`told_error`, as in `Rack-told`) there are two more:

    | Key | Shape | Meaning |
    |---|---|---|
    | `window` | (W 5,) | five numbers of each of the W gangs that may be offered, in the order they came |
    | `running` | (R 6 3,) | three numbers of each rack's gangs, the first to end by what they told first |

    Of a gang that may be offered: trays of a segment; segments / 4; hours told, x / (2 + x); hours waited,
    x / (1 + x); 1 if it is offered now. Of one that runs: its trays in the rack; its age and the time left as
    told, in hours, x / (2 + x).

    ## Rewards

    The sum of the terms in `reward`, times their weights. A term is minus the increase of a cost, so that
    a return is minus the cost at the end. The default is `{"waiting": 1.0, "moved": 1.0}`: the return is
    minus the hours that gangs waited or stood still for a move, a mean weighted by their GPUs.

    | Term | Cost |
    |---|---|
    | `waiting` | hours that gangs waited, a mean weighted by GPUs |
    | `moved` | hours that gangs stood still because they were moved, a mean weighted by GPUs |

    `info["rewards"]` has the terms unweighted.

    ## Illegal Actions

    The rack has no room, or the move or waiting is not possible: with `on_illegal="penalty"` nothing happens
    and the reward is `-illegal_penalty`; with `"noop"` nothing happens and the reward is 0; with `"raise"` it
    is an `InputError`. `info["illegal"]` says whether it happened.

    ## Starting State

    All racks are empty, and the first gang comes. Gangs come at even chance over the time in which the racks
    could just do their work (`load`).

    | Option of `reset` | Meaning |
    |---|---|
    | `gangs` | a `clustergym.envs.racks.gangs.Gangs` |
    | `trace_seed` | which episode is drawn: that of `reset(seed=trace_seed)` without a split |

    ## Episode End

    - Termination: all gangs have started.
    - Truncation: after `max_steps` steps, by default 50 for each gang. Gangs that have not started then cost
      as if they waited until all gangs could have run one after another.

    ## Arguments

    Parameters
    ----------
    render_mode : {"ansi", "rgb_array"}, optional
    **parameters
        Fields of `clustergym.envs.racks.gangs.RackParameters`.
    """

    def __init__(self, render_mode: str | None = None, **parameters: Any) -> None:
        super().__init__(render_mode)
        self.parameters: RackParameters = build_from_keywords(RackParameters, parameters, "env")
        self._reward: Reward[RackState] = Reward(COSTS, self.parameters.reward)
        racks = self.racks = self.parameters.racks
        self.action_space = spaces.Discrete(2 * racks + 1)
        sizes = {"free": racks, "gang": 3, "leaves": racks, "moves": 1, "own": racks, "queue": 1 + len(SIZES)}
        if self.parameters.told_error is not None:
            sizes |= {"window": 5 * self.parameters.window, "running": 3 * SLOTS * racks}
        self.parts = slice_parts(sizes)
        boxes = {name: spaces.Box(0.0, 1.0, (size,)) for name, size in sizes.items()}
        self.observation_space = join_boxes(boxes, self.parameters.observation)

    def action_masks(self) -> npt.NDArray[np.int8]:
        """Return a 0/1 mask, (2 R + 1,), of legal actions: place in each of R racks, move from each, wait.

        Where no gang is left, every action is legal. `action_space.sample(mask=…)` takes it.
        """
        state = self.state
        if state.over:
            return np.ones(2 * self.racks + 1, dtype=np.int8)
        racks = range(self.racks)
        legal = [*map(state.has_room, racks), *(state.find_move(rack) is not None for rack in racks)]
        return np.array([*legal, state.may_wait()]).view(np.int8)

    def _begin(self, options: Mapping[str, Any]) -> tuple[RackState, int]:
        gangs = episode_gangs(self.parameters, options, self.np_random)
        return RackState(self.parameters, gangs), self.parameters.max_steps or 50 * len(gangs.submit_s)

    def step(self, action: Any) -> Step:
        """Place a part of the offered gang (job) in a rack, let the gang wait, or move another gang."""
        action, state = self.check_action(action), self.state
        legal = bool(self.action_masks()[action])
        if not legal:
            self.refuse_action(f"{action} is not possible", 10)
        elif not state.over:
            # A move is chosen by the rack that is left: `find_move` says which gang goes, and where to.
            action_type, rack = divmod(action, self.racks)
            if action_type == 2:
                state.wait()
            else:
                (state.move if action_type else state.place)(rack)
        return self.end_step(legal, state.over)

    def _cut_off(self) -> None:
        self.state.give_up()

    def _draw(self, in_text: bool) -> Any:
        return (as_text if in_text else as_pixels)(self.state)

    def _observe(self) -> Observation:
        parts = {name: np.array(values, np.float32) for name, values in observe(self.state).items()}
        return np.concatenate(list(parts.values())) if self.parameters.observation == "flat" else parts

    def _facts(self) -> dict[str, Any]:
        state = self.state
        return {
            "now_s": state.now_s,
            "moves": state.moves,
            "stranded_trays": state.stranded,
            "waiting": len(state.waiting),
        }
