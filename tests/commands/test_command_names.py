"""A command is found by its name: as a file of the core, or in an entry point of a client."""

import importlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from clustergym.__main__ import COMMANDS, client_commands, find_command, main


def test_clients_name_their_commands():
    clients = client_commands()
    assert list(clients) == ["bench", "live", "reproduce", "twin"]
    assert not set(clients) & set(COMMANDS)


@pytest.mark.parametrize("command", [*COMMANDS, *client_commands()])
def test_every_command_has_a_module_with_a_main(command):
    assert callable(importlib.import_module(find_command(command)).main)


def test_the_list_says_what_each_command_does(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()[2:-2]
    assert [line.split()[0] for line in lines] == [*COMMANDS, *client_commands()]
    assert "  twin        a twin of one's own cluster" in lines
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.processes
@pytest.mark.parametrize("command", ["run", "oracle", "report", "twin", "bench"])
def test_python_m_runs_a_command(command):
    """As a file of its own, where a package has its name, where a module elsewhere has it, and of clients."""
    call = [sys.executable, "-m", f"clustergym.{command}", "--help"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: clustergym {command} ")


def test_a_command_by_its_short_name_has_a_file() -> None:
    """By which Ray names its driver."""
    spec = find_spec("clustergym.run")
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).parts[-2:] == ("commands", "run.py")


def test_only_commands_have_short_names():
    with pytest.raises(ModuleNotFoundError, match=r"clustergym\.nothing"):
        importlib.import_module("clustergym.nothing")
