"""The recording example: what the GIF and the MP4 hold, the same bytes twice, mistakes in one line."""

import sys

import pytest
from example_files import import_file

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


@pytest.fixture(scope="module")
def main():
    return import_file("examples/record_video.py").main


def test_an_episode_is_recorded(main, tmp_path, capsys):
    first, second = tmp_path / "first.gif", tmp_path / "second.gif"
    assert main(["--jobs", "4", "--out", str(first)]) == 0
    shown = capsys.readouterr().out
    pictures = int(shown.split(": ")[1].split()[0])
    with Image.open(first) as gif:
        # Equal pictures in a row are kept as one that lasts longer: 8 pictures a second, so 125 ms
        # each, which a GIF keeps in hundredths of a second.
        lasts_ms, colours = 0, set()
        for frame in range(gif.n_frames):
            gif.seek(frame)
            lasts_ms += gif.info["duration"]
            colours |= {colour for _, colour in gif.convert("RGB").getcolors()}
    assert pictures > 8
    assert lasts_ms == pytest.approx(125 * pictures, rel=0.1)
    # Free GPUs, and those of more than one job.
    assert len(colours) > 3
    assert main(["--jobs", "4", "--out", str(second)]) == 0
    assert first.read_bytes() == second.read_bytes()


def test_fewer_pictures(main, tmp_path, capsys):
    counts = []
    for every in ("1", "4"):
        assert main(["--jobs", "4", "--every", every, "--out", str(tmp_path / "a.gif")]) == 0
        counts.append(int(capsys.readouterr().out.split(": ")[1].split()[0]))
    assert counts[1] == -(-counts[0] // 4)


def test_a_video_holds_every_picture(main, tmp_path, capsys):
    pytest.importorskip("moviepy", reason="MoviePy is not installed: pip install 'clustergym[video]'")
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    first, second = tmp_path / "first.mp4", tmp_path / "second.mp4"
    for path in (first, second):
        assert main(["--jobs", "4", "--every", "2", "--out", str(path)]) == 0
    pictures = int(capsys.readouterr().out.split(": ")[1].split()[0])
    count, lasts_s = ffmpeg.count_frames_and_secs(str(first))
    assert pictures > 4
    assert count == pictures
    # 8 pictures a second.
    assert lasts_s == pytest.approx(pictures / 8, rel=0.1)
    assert first.read_bytes() == second.read_bytes()


def test_without_moviepy_one_line_says_so(main, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "moviepy", None)
    assert main(["--out", str(tmp_path / "a.mp4")]) == 2
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    assert "MoviePy is not installed (pip install 'clustergym[video]'" in shown.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--out", "a.avi"], "name a file that ends in .gif or .mp4"),
        (["--every", "0"], "--every is at least 1"),
        (["--policy", "srft"], "did you mean srtf"),
        (["--env", "Elastic"], "unknown environment 'Elastic'"),
    ],
)
def test_mistakes_are_one_line(main, tmp_path, monkeypatch, capsys, argv, line):
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    assert line in shown.err
    assert list(tmp_path.iterdir()) == []
