"""The actions that the parameter `actions` names."""

from __future__ import annotations

from clustergym.envs.actions import EditActions, MetaActions
from clustergym.envs.auction_actions import AuctionActions
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.scenario.policy import Setting

AnyActions = EditActions | MetaActions | AuctionActions


def make_actions(parameters: SchedulingParameters, setting: Setting) -> AnyActions:
    """Return the actions that `parameters.actions` names."""
    if parameters.actions == "meta":
        return MetaActions(parameters, setting)
    if parameters.actions in ("scores", "weights"):
        return AuctionActions(parameters, setting)
    return EditActions(parameters, setting)
