"""The state of an episode of `Capacity` as text and as a picture."""

from __future__ import annotations

from clustergym.envs.capacity.world import (
    CONTRACT,
    HOUR,
    HOURS,
    LEAD,
    ON_DEMAND,
    TERM,
    World,
)
from clustergym.envs.rendering import FAINT, HEIGHT, WIDTH, Picture, Pixels, choose_colour

MARGIN, TOP = 12, 64


def _count_contracts(world: World, begin: int, end: int) -> int:
    """Return how many contracts were ordered from hour `begin` on, to before hour `end`."""
    # The compiled function of this name is no entry: it cannot be called from here.
    return int(world.bought[0, max(begin, 0) : max(end, 0)].sum())


def as_text(world: World) -> str:
    """Return the state of the first episode as a line of text."""
    hour, jobs, hired = world.state[0].tolist()
    held = _count_contracts(world, hour - LEAD - TERM + 1, hour - LEAD + 1)
    ordered = _count_contracts(world, hour - LEAD + 1, hour)
    contract, on_demand = world.prices[0, min(hour, HOURS - 1)]
    return (
        f"hour {hour} of {HOURS}: {jobs} jobs; {world.size[1]} own GPUs, {held} contracts held and {ordered} "
        f"ordered at {contract:.2f} USD, {hired} on-demand GPUs at {on_demand:.2f} USD"
    )


def as_pixels(world: World) -> Pixels:
    """Return a picture of the first episode: GPUs of one's own and of contracts, and prices, by hour.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
    """
    picture, hour = Picture((HEIGHT, WIDTH)), int(world.state[0, HOUR])
    picture.text(MARGIN, 8, as_text(world), 18)
    picture.text(MARGIN, 40, "Above: own GPUs, contracts; below: their prices, on-demand prices", 13, FAINT)
    wide, high = (WIDTH - 2 * MARGIN) // HOURS, (HEIGHT - TOP) // 2
    own, most = int(world.size[1]), int(world.size[1] + world.size[2])
    for at in range(hour):
        held = _count_contracts(world, at - LEAD - TERM + 1, at - LEAD + 1)
        left, tall = MARGIN + at * wide, high * (own + held) // most
        picture.box(left, TOP + high - tall, wide - 1, tall, choose_colour(1))
        picture.box(left, TOP + high - high * own // most, wide - 1, high * own // most, choose_colour(0))
        for product, colour in ((ON_DEMAND, 2), (CONTRACT, 3)):
            tall = int(min(world.prices[0, at, product] * high / 8.0, high - MARGIN))
            picture.box(left, HEIGHT - tall, wide - 1, tall, choose_colour(colour))
    return picture.pixels()
