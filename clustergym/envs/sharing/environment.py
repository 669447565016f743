"""The environment `ClusterGym/Sharing-v1`: an agent places requests for parts of GPUs on nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from clustergym.common.arrays import Bools
from clustergym.common.parameters import build_from_keywords
from clustergym.envs.placing import Observation, PlacingEnv, Step, slice_parts
from clustergym.envs.rewards import Reward
from clustergym.envs.sharing.episode import FITS
from clustergym.envs.sharing.parameters import SharingParameters, episode_stream
from clustergym.envs.sharing.state import COSTS, SharingState, as_pixels, as_text, layout, observe, space
from clustergym.envs.sharing.streams import generate_source


class SharingEnv(PlacingEnv[SharingState, SharingParameters]):
    """An environment whose agent places requests for parts of GPUs, whole GPUs or CPU alone on nodes.

    ## Description

    Requests arrive one by one, each for CPU, host memory, and nothing, a part of one GPU, or whole GPUs.
    The agent chooses a node for each. A request that fits nowhere is rejected for good, which the environment
    does by itself; none that fits can be turned down. Idle GPU in pieces that the usual requests cannot use
    is a fragment, so a good placement keeps what is idle usable (Weng et al., "Beware of Fragmentation",
    USENIX ATC 2023). Requests stay for ever, and what counts is how much of the GPUs is allocated when
    requests for 1.3 times as many have come, as in that paper's experiment.

    Nodes and requests are generated with the shapes and shares of Alibaba's openb cluster.

    | id | nodes | GPUs |
    |---|---|---|
    | `ClusterGym/Sharing-small-v1` | 16 | 82 |
    | `ClusterGym/Sharing-v1` | 64 | 327 |
    | `ClusterGym/Sharing-large-v1` | 1,213, those of openb | 6,212 |

    ## Action Space

    `Discrete(N)`, N nodes: the node on which the request is placed.

    A part of a GPU is taken from the device that FGD's score prefers. Whole GPUs are the untouched ones of
    the lowest numbers. An action is legal where the request fits; `action_masks()` and
    `info["action_mask"]` say so. At least one action is always legal.

    ## Observation Space

    `Dict` of `Box(0, 1, float32)`, but `growth` from -1; with `observation="flat"` one `Box` of the same
    numbers, in this order. Those of shape (N,) are of each node; those named `_after` are what it would be
    with the request on it, and 0 where that does not fit.

    | Key | Shape | Meaning | Divided by |
    |---|---|---|---|
    | `alike` | (N,) | requests there of the same class: a part, or as many GPUs | those there with GPUs |
    | `balance_after` | (N,) | x / (1 + x); x: its free CPU for each free GPU | that of the usual requests |
    | `cpu`, `cpu_after` | (N,) | free CPU | the node's |
    | `device_after` | (N,) | left on the device of which it takes a part | a device |
    | `devices` | (N,) | its devices | those of the largest node |
    | `fits` | (N,) | whether the request fits | 1 |
    | `fragments`, `fragments_after` | (N,) | idle GPU that a usual request cannot use | the node's GPUs |
    | `gpu`, `gpu_after` | (N,) | idle GPU | the node's |
    | `growth` | (N,) | by how much the fragments grow | the GPUs of the largest node |
    | `memory`, `memory_after` | (N,) | free host memory | the node's |
    | `request` | (4,) | its CPU, memory, devices, and part of each | those of the largest node, a device |
    | `stream` | (2,) | requests that have come; GPU allocated | x / (x + those that fill it); installed |
    | `untouched`, `untouched_after` | (N,) | devices of which nothing is taken | the node's devices |

    ## Rewards

    The sum of the terms in `reward`, times their weights. A term is minus the increase of a cost, so that
    a return is minus the cost at the end. The default is `{"allocated": 1.0}`.

    | Term | Cost |
    |---|---|
    | `allocated` | minus the GPU allocated, as a share of that installed |
    | `fragments` | GPU that is idle and unusable, as a share of that installed, less that of the start |
    | `rejected` | share of the requests that are rejected |

    `info["rewards"]` has the terms unweighted.

    ## Illegal Actions

    The request does not fit there: with `on_illegal="penalty"` nothing is placed and the reward is
    `-illegal_penalty`; with `"noop"` nothing is placed and the reward is 0; with `"raise"` it is an
    `InputError`. `info["illegal"]` says whether it happened.

    ## Starting State

    All nodes are empty. Requests are drawn one by one, all of the list with the same probability.

    | Option of `reset` | Meaning |
    |---|---|
    | `stream` | a `clustergym.envs.sharing.streams.Stream` on as many nodes and devices |

    ## Episode End

    - Termination: no request is left that fits. Where none fits from the start the first action ends the
      episode, whatever it is.
    - Truncation: after `max_steps` steps, by default twice the requests, which only illegal actions lead to.

    ## Arguments

    Parameters
    ----------
    render_mode : {"ansi", "rgb_array"}, optional
    **parameters
        Fields of `clustergym.envs.sharing.parameters.SharingParameters`.
    """

    def __init__(self, render_mode: str | None = None, **parameters: Any) -> None:
        super().__init__(render_mode)
        self.parameters: SharingParameters = build_from_keywords(SharingParameters, parameters, "env")
        self.source = generate_source(self.parameters.nodes)
        self._reward: Reward[SharingState] = Reward(COSTS, self.parameters.reward)
        self.nodes = len(self.source.nodes.devices)
        self.action_space = spaces.Discrete(self.nodes)
        self._layout = layout(self.nodes)
        self.parts = slice_parts(self._layout)
        self.observation_space = space(self._layout, self.parameters.observation)

    def action_masks(self) -> npt.NDArray[np.int8]:
        """Return a mask, 1 for each node on which the current request fits.

        Where no request is left, every action is legal. `action_space.sample(mask=…)` takes it.
        """
        state = self.state
        if state.over:
            return np.ones(self.nodes, dtype=np.int8)
        fits: Bools = state.episode.features[state.request, :, FITS] > 0
        return fits.view(np.int8)

    def _begin(self, options: Mapping[str, Any]) -> tuple[SharingState, int]:
        state = SharingState(episode_stream(self.parameters, self.source, options, self.np_random))
        return state, self.parameters.max_steps or 2 * state.number

    def step(self, action: Any) -> Step:
        """Place the current request on the node that the action chooses."""
        action, state = self.check_action(action), self.state
        legal = state.over or self._place(state, action)
        return self.end_step(legal, state.over)

    def _place(self, state: SharingState, action: int) -> bool:
        """Place the current request if the action is legal; return whether it was."""
        if not self.action_masks()[action]:
            self.refuse_action(f"the request does not fit at {action}", 10)
            return False
        state.put(action, int(state.episode.device[state.request, action]))
        return True

    def _draw(self, in_text: bool) -> Any:
        return (as_text if in_text else as_pixels)(self.state)

    def _observe(self) -> Observation:
        found = observe(self.state, self._layout)
        return found if self.parameters.observation == "dict" else np.concatenate(list(found.values()))

    def _facts(self) -> dict[str, Any]:
        state = self.state
        return {
            "arrival": state.arrival,
            "allocated": state.allocated,
            "fragments": state.fragments,
            "rejected": state.rejected,
        }
