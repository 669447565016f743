"""Record an episode of a scheduling environment, played by a policy, as an animated GIF or as an MP4.

python examples/record_video.py [--env ID] [--policy NAME] [--jobs N] [--seed N] [--every N] [--out FILE]

Pictures need Pillow, the extra `render`; an MP4 is made by Gymnasium's `RecordVideo` and MoviePy, the
extra `video`.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

import gymnasium
from gymnasium.wrappers import RecordVideo, RenderCollection

import clustergym  # noqa: F401  registers the environments
from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.common.writing import atomic_path
from clustergym.envs.driver import Drive, drive, driving_parameters
from clustergym.envs.registration import make_env


def record_gif(env: gymnasium.Env, policy: str, seed: int, every: int, path: Path) -> tuple[Drive, int]:
    """Play an episode and write one of `every` pictures as a GIF that repeats; return their number too."""
    from PIL import Image

    env = RenderCollection(env)
    played = drive(env, policy, seed=seed)
    pictures = [Image.fromarray(frame) for frame in env.render()[::every]]
    lasts_ms = round(1000 / env.metadata["render_fps"])
    with atomic_path(path) as temporary:
        pictures[0].save(
            temporary, format="GIF", save_all=True, append_images=pictures[1:], duration=lasts_ms, loop=0
        )
    return played, len(pictures)


def record_mp4(env: gymnasium.Env, policy: str, seed: int, every: int, path: Path) -> tuple[Drive, int]:
    """Play an episode and write one of `every` pictures as a video; return their number too."""
    with tempfile.TemporaryDirectory() as folder:
        videos = Path(folder) / "videos"
        env = RecordVideo(env, str(videos), episode_trigger=lambda episode: True)
        played = drive(env, policy, seed=seed)
        env.recorded_frames = env.recorded_frames[::every]
        pictures = len(env.recorded_frames)
        env.close()
        (made,) = videos.glob("*.mp4")
        with atomic_path(path) as temporary:
            shutil.move(made, temporary)
    return played, pictures


FORMATS = {
    ".gif": (record_gif, "PIL", "Pillow", "pip install 'clustergym[render]'"),
    ".mp4": (record_mp4, "moviepy", "MoviePy", "pip install 'clustergym[video]', or name a .gif"),
}


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Play one episode and write its pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="ClusterGym/Elastic-16-v1")
    parser.add_argument("--policy", default="srtf")
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="keep one of so many pictures")
    parser.add_argument("--out", type=Path, default=Path("episode.gif"))
    given = parser.parse_args(argv)
    if given.every < 1 or given.seed < 0:
        raise InputError("--every is at least 1, --seed at least 0", remedy="change them")
    if given.out.suffix not in FORMATS:
        remedy = "name a file that ends in .gif or .mp4"
        raise InputError(f"unknown format {given.out.suffix!r}", file=given.out, field="--out", remedy=remedy)
    record, module, library, remedy = FORMATS[given.out.suffix]
    if importlib.util.find_spec(module) is None:
        raise InputError(f"{library} is not installed", file=given.out, remedy=remedy)
    rows = {"jobs": given.jobs, "rows": given.jobs}
    env = make_env({"id": given.env, **rows, **driving_parameters(given.policy)}, render_mode="rgb_array")
    played, pictures = record(env, given.policy, given.seed, given.every, given.out)
    hours = played.metrics["jct_mean"] / 3600
    print(f"wrote {given.out}: {pictures} pictures, {given.policy}'s mean JCT {hours:.2f} h")
    return 0


if __name__ == "__main__":
    sys.exit(main())
