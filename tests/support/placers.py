"""Placers for tests worked out by hand."""

import numpy as np

from clustergym.scenario.policy import Infeasible, Placer


class LowestFirst(Placer):
    """Gives out the nodes of least number."""

    name = "lowest-first"

    def place(self, allocations, gpu_type, gpus):
        nodes = []
        for node in np.flatnonzero((allocations.spec.node_type == gpu_type) & (allocations.free_on_node > 0)):
            if gpus:
                nodes.append((int(node), min(gpus, int(allocations.free_on_node[node]))))
                gpus -= nodes[-1][1]
        return Infeasible("too few", gpus_short=gpus) if gpus else tuple(nodes)
