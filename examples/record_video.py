"""Record an episode of a scheduling environment, played by a policy, as an animated GIF.

python examples/record_video.py [--env ID] [--policy NAME] [--jobs N] [--seed N] [--every N] [--out FILE.gif]

Gymnasium's `RecordVideo` wraps the same environments where MoviePy is installed; this needs Pillow only.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gymnasium.wrappers import RenderCollection

import clustergym  # noqa: F401  registers the environments
from clustergym.envs.config import make_env
from clustergym.envs.driver import drive, driving_parameters
from clustergym.errors import InputError, exits_on_bad_input
from clustergym.paths import atomic_path


def write_gif(frames: list, path: Path, frames_per_s: float) -> None:
    """Write pictures of one size, each an array of shape (height, width, 3), as a GIF that repeats."""
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("Pillow is not installed", file=path, remedy="pip install pillow") from error
    pictures = [Image.fromarray(frame) for frame in frames]
    with atomic_path(path) as temporary:
        pictures[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=pictures[1:],
            duration=round(1000 / frames_per_s),
            loop=0,
        )


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Play one episode and write its pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="ClusterGym/Elastic-16-v0")
    parser.add_argument("--policy", default="srtf")
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="keep one of so many pictures")
    parser.add_argument("--out", type=Path, default=Path("episode.gif"))
    given = parser.parse_args(argv)
    if given.every < 1 or given.seed < 0:
        raise InputError("--every is at least 1, --seed at least 0", remedy="change them")
    if given.out.suffix != ".gif":
        raise InputError("is no GIF", file=given.out, field="--out", remedy="name a file that ends in .gif")
    rows = {"jobs": given.jobs, "rows": given.jobs}
    plain = make_env({"id": given.env, **rows, **driving_parameters(given.policy)}, render_mode="rgb_array")
    env = RenderCollection(plain)
    played = drive(env, given.policy, seed=given.seed)
    frames = env.render()[:: given.every]
    write_gif(frames, given.out, env.metadata["render_fps"])
    hours = played.metrics["jct_mean"] / 3600
    print(f"wrote {given.out}: {len(frames)} pictures, {given.policy}'s mean JCT {hours:.2f} h")
    return 0


if __name__ == "__main__":
    sys.exit(main())
