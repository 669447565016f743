"""Policies are found by the names of their files; what cannot be one is told in one line."""

import re
import sys
from pathlib import Path

import pytest

from clustergym import policies
from clustergym.common.errors import InputError
from clustergym.scenario import registry
from clustergym.scenario.registry import find_class

ONE = """
from dataclasses import dataclass

from clustergym.scenario.policy import Decision, InformationClass, Policy, View


@dataclass
class {name}(Policy):
    name = "newest"
    information_class = InformationClass.NONE
    patience_s: float = 5.0

    def schedule(self, view: View) -> Decision:
        return Decision.keep(view)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(policies, "__path__", [*policies.__path__, str(tmp_path)])
    registry.entry_points.cache_clear()
    yield tmp_path
    registry.entry_points.cache_clear()
    sys.modules.pop("clustergym.policies.newest", None)


def test_a_new_file_is_a_policy_and_no_list_names_it(folder: Path) -> None:
    (folder / "newest.py").write_text(ONE.format(name="NewestFirst"))
    made = registry.make_policy({"name": "newest", "patience_s": 7})
    assert (type(made).__name__, registry.list_parameters(made)["patience_s"]) == ("NewestFirst", 7.0)


@pytest.mark.parametrize(("text", "count"), [("", 0), (ONE.format(name="A") + ONE.format(name="B"), 2)])
def test_a_file_that_is_not_one_policy_is_one_line(folder: Path, text: str, count: int) -> None:
    (folder / "newest.py").write_text(text)
    with pytest.raises(InputError, match=f"it defines {count} classes of Policy, not one"):
        registry.make_policy({"name": "newest"})


def test_a_file_that_cannot_be_imported_is_one_line(folder: Path) -> None:
    (folder / "newest.py").write_text("import a_module_that_nobody_has\n")
    told = (
        "^policy.name: policy 'newest' cannot be loaded from clustergym.policies.newest.*a_module_that_nobo"
    )
    with pytest.raises(InputError, match=told):
        registry.make_policy({"name": "newest"})


def test_a_policy_in_words():
    made = registry.parse_policy("srtf elastic=true", "env.baseline")
    assert (made.name, registry.list_parameters(made)["elastic"]) == ("srtf", True)
    for text, told in (
        ("srtf elastic", r"^env\.baseline: 'elastic' is not a parameter \(write policy key=value"),
        ("srtf elastic=[", r"^env\.baseline\.elastic: '\[' is not a value \(give YAML\)"),
        ("", "^policy.name: "),
        ("srtf elastik=true", "unknown key 'elastik'"),
    ):
        with pytest.raises(InputError, match=told):
            registry.parse_policy(text, "env.baseline")


def test_a_period_that_is_none_names_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that a class sets itself."""

    class HastyPolicy(find_class("policy", "fcfs")):
        def __post_init__(self) -> None:
            self.round_s = -5.0

    class HastyPlacer(find_class("placer", "buddy")):
        def __post_init__(self) -> None:
            self.defragment_s = -5.0

    for made_by, one, key in (("policy", HastyPolicy, "round_s"), ("placer", HastyPlacer, "defragment_s")):
        monkeypatch.setattr(registry, "find_class", lambda *_, one=one: one)
        with pytest.raises(InputError, match=f"^{made_by}.{key}: "):
            getattr(registry, f"make_{made_by}")({"name": "hasty"})


def test_a_policy_that_lacks_something_is_one_line(folder: Path) -> None:
    (folder / "newest.py").write_text(ONE.format(name="A").replace("information_class =", "knows ="))
    with pytest.raises(InputError, match=r"policy.name: A lacks information_class \(define it\)"):
        registry.make_policy({"name": "newest"})


@pytest.mark.parametrize("name", registry.entry_points("policy"))
def test_the_text_of_a_policy_has_its_parameters_alone(name: str) -> None:
    shown = repr(registry.make_policy({"name": name}))
    assert not re.search(r"[( ]_\w+=", shown), shown


def test_a_preset_is_a_policy_by_name_with_other_parameters() -> None:
    """A preset is a file of conf/policy that names another policy: Crius is Arena with other rules."""
    crius = registry.make_policy({"name": "crius"})
    assert (type(crius).__name__, crius.queues, crius.throughput) == ("Arena", "priority", "raw")
    assert registry.make_policy({"name": "crius", "queues": "run_time"}).queues == "run_time"


@pytest.mark.parametrize(
    ("name", "meant"), [("heSRPT", "hesrpt"), ("FCFS", "fcfs"), ("SIA", "sia"), ("Crius", "crius")]
)
def test_a_name_in_other_letters_is_suggested_alone(name: str, meant: str) -> None:
    with pytest.raises(InputError, match=rf"unknown policy '{name}' \(did you mean {meant}\?\)"):
        registry.make_policy({"name": name})


def test_a_policy_with_an_option_of_another_class_is_of_that_class() -> None:
    """So that a newcomer reads plain FCFS in one file, and recorded parameters still make the policy."""
    made = {words: registry.parse_policy(words, "") for words in ("fcfs queue=cluster", "fcfs backfill=none")}
    assert [type(one).__name__ for one in made.values()] == ["FirstComeFirstServed", "FcfsWithOptions"]
    assert {one.name for one in made.values()} == {"fcfs"}
    assert registry.make_policy({"name": "fcfs-backfill"}).backfill == "aggressive"
    with pytest.raises(InputError, match=r"unknown key 'backfil' \(did you mean backfill\?\)"):
        registry.parse_policy("fcfs backfil=easy", "")
