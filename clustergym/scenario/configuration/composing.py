"""Let Hydra compose configurations that differ in values alone once a process, and then change the values."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import yaml
from hydra._internal import hydra as hydra_module
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.hydra import Hydra
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobRuntime
from hydra.types import RunMode
from omegaconf import DictConfig, open_dict

from clustergym.common.yaml_file import Loader

_composed: dict[tuple[object, ...], Callable[[], DictConfig]] = {}
"""What makes copies of the configurations that were composed, by all that decides which files are read."""
MOST = 256
"""So many configurations are kept, of some 20 kB each."""

_offered: dict[tuple[str, str], object] = {}
"""What was offered to Hydra besides the files, by group and name."""


class ValuesLater(ConfigLoaderImpl):
    """A Hydra loader that reads configuration files once, and applies overrides of single keys afterwards.

    The runs of a sweep mostly differ in values; Hydra reads and merges some twenty files for each, and twice.
    """

    def _load_configuration_impl(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        parsed = [_parsed(word) for word in overrides]
        if validate_sweep_overrides:
            self.validate_sweep_overrides_legal(parsed, run_mode, from_shell)
        path = tuple((entry.provider, entry.path) for entry in self.config_search_path.get_path())
        # A user's folders, whose files may change in the meantime.
        if any(provider == "command-line" for provider, _ in path) or any(
            override.get_key_element() == "hydra.searchpath" for override in parsed
        ):
            return super()._load_configuration_impl(
                config_name, overrides, run_mode, from_shell, validate_sweep_overrides
            )
        values = [override for override in parsed if self._is_value(override)]
        files = tuple(override.input_line for override in parsed if override not in values)
        config = self._of_files((config_name, files, path, JobRuntime.instance().get("name")), run_mode)
        self._apply_overrides_to_config([each for each in values if not each.is_sweep_override()], config)
        _note(config, parsed)
        return config

    def _is_value(self, override: Any) -> bool:
        """Return whether an override chooses no file; one that sweeps chooses none before the sweep."""
        if override.is_sweep_override() or isinstance(override.value(), dict):
            return True
        return not self.repository.group_exists(override.key_or_group)

    def _of_files(self, key: tuple[Any, ...], run_mode: RunMode) -> DictConfig:
        """Compose with the overrides that choose files, unless that was done under this key."""
        name, files, *_ = key
        # Without a missing choice, which only RUN refuses, both are the same.
        for known in ((*key, RunMode.RUN), (*key, run_mode)):
            if known in _composed:
                return _composed[known]()
        with _reading_fast():
            config = super()._load_configuration_impl(
                name, list(files), run_mode, validate_sweep_overrides=False
            )
        # All at once: which are used again is not known, and a sweep soon has its own again.
        if len(_composed) >= MOST:
            _composed.clear()
        _composed[*key, run_mode] = _copies_of(config)
        return config


class _HydraOnce(Hydra):
    def get_mode(self, config_name: str | None, overrides: list[str]) -> Any:
        """Return the mode (run or sweep) that a configuration asks for; keep the composition for the run."""
        try:
            config = self.compose_config(config_name, overrides, RunMode.RUN, validate_sweep_overrides=False)
        except Exception:  # As Hydra does: the composition that follows says what is wrong.
            return None
        return config.hydra.mode


@contextlib.contextmanager
def composing_once() -> Iterator[None]:
    """Read the same configuration files only once inside a `with` block, so that sweeps start faster."""
    own = {"Hydra": _HydraOnce, "ConfigLoaderImpl": ValuesLater}
    before = {name: vars(hydra_module)[name] for name in own}
    vars(hydra_module).update(own)
    try:
        yield
    finally:
        vars(hydra_module).update(before)


@contextlib.contextmanager
def _reading_fast() -> Iterator[None]:
    """Let OmegaConf read YAML by libyaml inside a `with` block, in a sixth of the time."""
    names, before = vars(yaml), yaml.SafeLoader
    names["SafeLoader"] = Loader
    try:
        yield
    finally:
        names["SafeLoader"] = before


def offer(group: str, name: str, node: Mapping[str, Any]) -> None:
    """Register `node` so that configurations can choose it as if it were the file `conf/GROUP/NAME.yaml`."""
    if _offered.get((group, name)) != node:
        ConfigStore.instance().store(group=group, name=name, node=dict(node))
        # What was composed before did not know of it.
        _offered[group, name] = dict(node)
        _composed.clear()


def _copies_of(config: DictConfig) -> Callable[[], DictConfig]:
    """Return a function that copies a configuration by its pickle, in a sixth of the time of a deep copy."""
    try:
        return partial(pickle.loads, pickle.dumps(config))
    except pickle.PicklingError:  # Hydra may have imported the module of a plugin's configuration twice.
        return partial(copy.deepcopy, copy.deepcopy(config))


@lru_cache(4096)
def _parsed(word: str) -> Any:
    return OverridesParser.create().parse_override(word)


def _note(config: DictConfig, overrides: Sequence[Any]) -> None:
    """Note in a configuration what Hydra notes of its overrides."""
    hydra = config.hydra
    hydra.overrides.hydra = [each.input_line for each in overrides if each.is_hydra_override()]
    of_task = [each for each in overrides if not each.is_hydra_override()]
    hydra.overrides.task = [each.input_line for each in of_task]
    with open_dict(hydra):
        for key in hydra.job.env_copy:
            hydra.job.env_set[key] = os.environ[key]
    hydra.runtime.cwd = os.getcwd()
    look = hydra.job.config.override_dirname
    hydra.job.override_dirname = get_overrides_dirname(
        overrides=of_task, kv_sep=look.kv_sep, item_sep=look.item_sep, exclude_keys=look.exclude_keys
    )
