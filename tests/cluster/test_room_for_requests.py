"""Whether a node has room for a request: cores, memory, model and GPUs must all be on one node."""

import numpy as np

from clustergym.cluster.parts import Requests, empty_nodes, fitting


def test_each_resource_can_be_the_one_that_lacks() -> None:
    # Node 0: 8 cores, 100 MiB, 2 GPUs of model 0, of which one is half free.
    # Node 1: 2 cores, 900 MiB, 1 GPU of model 1.
    nodes = empty_nodes(np.array([8000, 2000]), np.array([100, 900]), np.array([2, 1]), np.array([0, 1]))
    nodes.gpu_milli[0, 1] = 500
    rows = [
        # cores, memory, GPUs, thousandths of each, models (a bit each), and whether it fits
        ((8000, 100, 1, 1000, 0b11), True),
        ((8001, 100, 1, 1000, 0b11), False),  # No node has the cores,
        ((8000, 101, 1, 1000, 0b11), False),  # nor cores and memory,
        ((8000, 100, 1, 1000, 0b10), False),  # nor both beside a GPU of model 1.
        ((2000, 900, 1, 1000, 0b10), True),
        ((8000, 100, 2, 500, 0b01), True),
        ((8000, 100, 2, 501, 0b01), False),  # One of the two is half free.
        ((0, 0, 2, 500, 0b10), False),  # Model 1 is there once.
        ((3000, 0, 1, 1000, 0b10), False),  # Node 1 lacks the cores, though it has the GPU.
        ((8000, 100, 0, 0, 0), True),  # Without a GPU the model does not matter.
    ]
    columns = (np.array(column) for column in zip(*(row for row, _ in rows), strict=True))
    assert fitting(nodes, Requests(*columns)).tolist() == [fits for _, fits in rows]
