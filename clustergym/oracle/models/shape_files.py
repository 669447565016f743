"""Reads accelerators and transformers from YAML; transformers from config.json, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

from clustergym.common.errors import InputError, nearest
from clustergym.common.paths import conf_dir
from clustergym.oracle.models.shape import LatentAttention, Machine, Mamba, TransformerShape

T = TypeVar("T")
_READ: dict[tuple[Path, str], tuple[tuple[int, ...], Any]] = {}


def make_schema(made: Any) -> Any:
    """Return a Pydantic model with a dataclass's fields, to check YAML entries of that dataclass."""
    from pydantic import Field, create_model

    from clustergym.cluster.schema import StrictSchema, Text

    # Counts are bounded so that no product of them overflows a float.
    of_type: dict[Any, Any] = {
        int: Annotated[int, Field(ge=0, le=10**7)],
        float: Annotated[float, Field(ge=0, lt=1e9)],
        bool: bool,
        str: str,
        tuple[str, ...]: list[Text],
    }
    hints = get_type_hints(made)
    keys: dict[str, Any] = {}
    for one in fields(made):
        hint = hints[one.name]
        inner = next((part for part in getattr(hint, "__args__", ()) if is_dataclass(part)), None)
        optional = one.default is None
        options = [part for part in getattr(hint, "__args__", ()) if part is not type(None)]
        plain = options[0] if optional else hint
        known: Any = make_schema(inner) if inner else of_type[plain]
        keys[one.name] = (known | None if optional else known, ... if one.default is MISSING else one.default)
    named = keys.pop("name", None)
    if named is not None:
        keys |= {"aliases": (list[Text], []), "source": (str, ""), "uncertain": (list[Text], [])}
    return create_model(made.__name__ + "Keys", __base__=StrictSchema, **keys)


def _build(made: Any, keys: Mapping[str, Any], **more: Any) -> Any:
    known = {one.name for one in fields(made)}
    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in keys.items() if key in known
    }
    inside: tuple[tuple[str, Any], ...] = (("latent", LatentAttention), ("mamba", Mamba))
    for key, inner in inside:
        if isinstance(given.get(key), dict):
            given[key] = inner(**given[key])
    return made(**given, **more)


def _read(path: Path, section: str, made: type[T]) -> dict[str, T]:
    """Return the entries of a file by each of their names, in lower case."""
    from pydantic import create_model

    from clustergym.cluster.schema import StrictSchema, Text, validate_content
    from clustergym.common.yaml_file import read_mapping

    by_name: Any = dict.__class_getitem__((Text, make_schema(made)))
    keys_of_file: dict[str, Any] = {section: (by_name, ...)}
    file_keys: Any = create_model("FileKeys", __base__=StrictSchema, **keys_of_file)
    source = read_mapping(path)
    given = validate_content(file_keys, source.content, file=path, source=source)
    found: dict[str, T] = {}
    for name, keys in getattr(given, section).items():
        one = _build(made, keys.model_dump(), name=name)
        try:
            _check_shape(one, path)
        except InputError as error:
            # Only now: to find the lines of all entries takes time that grows with their number squared.
            line = source.line((section, name))
            raise InputError(
                error.message, file=path, line=line, field=error.field, remedy=error.remedy
            ) from None
        for alias in (name, *keys.aliases):
            found[alias.lower()] = one
    return found


def _check_shape(one: object, path: Path) -> None:
    """Raise an error for keys of a shape that are wrong together."""
    if isinstance(one, Machine):
        needed: tuple[str, ...] = (
            *("bf16_tflops", "memory_gb", "memory_gbs", "link_gbs", "nic_gbps", "power_w", "domain"),
        )
    elif isinstance(one, TransformerShape):
        needed = ("hidden", "layers", "heads", "vocabulary")
        if one.experts:
            needed += ("experts_per_token", "expert_feed_forward")
        if one.plain_layers:
            needed += ("feed_forward",)
    else:
        return
    for key in (*needed, "window_every") if isinstance(one, TransformerShape) else needed:
        if not getattr(one, key):
            raise InputError("must be above 0", file=path, field=f"{one.name}.{key}")
    if isinstance(one, TransformerShape) and (one.experts_per_token > one.experts or one.expert_layers < 0):
        message = "more experts a token than there are, or more layers without experts than layers"
        raise InputError(message, file=path, field=one.name, remedy="correct its counts")


def _accelerators(more: Path | None) -> Mapping[str, Machine]:
    own = _read_once(conf_dir() / "hardware" / "accelerators.yaml", "accelerators", Machine)
    return {**own, **_read_once(more, "accelerators", Machine)} if more else own


def _transformers(more: Path | None) -> Mapping[str, TransformerShape]:
    own = _read_once(conf_dir() / "transformer" / "shapes.yaml", "transformers", TransformerShape)
    return {**own, **_read_once(more, "transformers", TransformerShape)} if more else own


def _read_once(path: Path, section: str, made: type[T]) -> Mapping[str, T]:
    """Return `_read` of a file, from memory while the file does not change."""
    try:
        status = path.stat()
    except OSError:
        # Reading it says what is wrong.
        return _read(path, section, made)
    stamp = (status.st_mtime_ns, status.st_size)
    if _READ.get((path, section), ((), {}))[0] != stamp:
        _READ[path, section] = (stamp, _read(path, section, made))
    known: Mapping[str, T] = _READ[path, section][1]
    return known


def _entry(name: str, known: Mapping[str, T], field: str) -> T:
    if name.lower() not in known:
        names = sorted({str(getattr(one, "name", "")) for one in known.values()})
        raise InputError(f"unknown {field} {name!r}", remedy=nearest(name, names))
    return known[name.lower()]


def load_accelerator(name: str, more: Path | None = None) -> Machine:
    """Return an accelerator by name, in upper or lower case, from the catalogue or from the file `more`.

    Parameters
    ----------
    more : Path, optional
        A YAML file with further ones, in the form of conf/hardware/accelerators.yaml.
    """
    return _entry(name, _accelerators(more), "accelerator")


def find_accelerator(name: str) -> Machine | None:
    """Return an accelerator from the catalogue by name; None if there is none."""
    return _accelerators(None).get(name.lower())


def load_transformer(name: str, more: Path | None = None) -> TransformerShape:
    """Load a transformer's shape by its name, or from the path of a Hugging Face config.json."""
    if name.endswith(".json"):
        return read_hugging_face(Path(name))
    return _entry(name, _transformers(more), "model")


def read_hugging_face(path: Path) -> TransformerShape:
    """Read a transformer's shape from a Hugging Face config.json."""
    from clustergym.cluster.schema import validate_content
    from clustergym.common.reading import read_json
    from clustergym.oracle.models.hugging_face import GIVE, LARGEST_CONFIG_BYTES, HuggingFaceConfig

    content = read_json(path, LARGEST_CONFIG_BYTES, GIVE)
    if not isinstance(content, dict):
        raise InputError("is not an object of keys", file=path, remedy=GIVE)
    keys = HuggingFaceConfig(content, path).shape_keys()
    given: Any = validate_content(make_schema(TransformerShape), keys, file=path)
    name = path.parent.name or "config" if path.stem == "config" else path.stem
    shape: TransformerShape = _build(TransformerShape, given.model_dump(), name=name)
    _check_shape(shape, path)
    return shape
