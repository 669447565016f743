"""Read a transformer's shape from a Hugging Face `config.json`.

Each family has keys of its own for the same thing, and classes have defaults that a file does not say:
conf/transformer/hugging_face.yaml lists them. A key that may change the number of parameters and is not known
is an error. Other unknown keys are named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.left_out import not_modelled, not_read
from clustergym.common.paths import conf_dir
from clustergym.common.yaml_file import read_mapping
from clustergym.oracle.models.shape import LatentAttention

LARGEST_CONFIG_BYTES = 1_000_000
GIVE = "give a config.json of a Hugging Face model"
DESCRIBE = "describe the model as conf/transformer/shapes.yaml does, and give that file with --shapes"
ACTIVATIONS = ("hidden_act", "activation_function", "hidden_activation", "mlp_hidden_act")


@lru_cache(maxsize=1)
def known_keys() -> Mapping[str, Any]:
    """Load conf/transformer/hugging_face.yaml."""
    return read_mapping(conf_dir() / "transformer" / "hugging_face.yaml").content


class HuggingFaceConfig:
    """The content of a `config.json`, with what its family's class adds to it.

    Parameters
    ----------
    content : mapping
    path : Path
        The file, for errors.
    """

    def __init__(self, content: Mapping[str, Any], path: Path) -> None:
        self.path, self.content = path, dict(content)
        parts = known_keys()["fields"]["parts"]
        for part in parts:
            if isinstance(content.get(part), Mapping):
                # DBRX and MPT repeat `model_type` in each part, empty.
                self.content |= {key: value for key, value in content[part].items() if value != ""}
        # Encoders of pictures and sound, which the text model does not contain.
        beside = [key for key, value in content.items() if isinstance(value, Mapping)]
        beside = [key for key in beside if re.search(r"(vision|audio|speech).*_config$", key)]
        not_modelled(beside)
        for key in (*beside, *parts):
            self.content.pop(key, None)
        self.family = str(self.content.get("model_type") or "")

    def error(self, key: str, message: str, remedy: str = DESCRIBE) -> InputError:
        """Return an error that names a key of the file."""
        return InputError(message, file=self.path, field=key, remedy=remedy)

    def is_family(self, listed: str) -> bool:
        """Return whether the model is of a family that conf/transformer/hugging_face.yaml lists so."""
        return self.family in known_keys()[listed]

    def first(self, keys: Sequence[str]) -> tuple[str, Any]:
        """Return the first of some keys whose value is not null, with it; or the first key and None."""
        found = next((key for key in keys if self.content.get(key) is not None), None)
        if found is None:
            return keys[0], None
        value = self.content[found]
        if isinstance(value, list):
            names = known_keys()["fields"]["layers"]
            layers = next((self.content[key] for key in names if key in self.content), None)
            if len(value) != layers or len(set(map(repr, value))) != 1:
                raise self.error(found, "is not the same for each layer, which is not known")
            value = value[0]
        return found, value

    def count(self, *keys: str) -> int | None:
        """Return the whole number at the first of some keys that is there; None if none is."""
        key, value = self.first(keys)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 10**7:
            raise self.error(key, f"must be an integer from 0 to 10,000,000, not {str(value)[:40]!r}", GIVE)
        return value

    def field(self, name: str) -> int | None:
        """Return the number at the first key that says a field of a shape; None if none does."""
        return self.count(*known_keys()["fields"][name])

    def read_needed(self, name: str) -> int:
        """Return a field of a shape that must be there and above 0."""
        value, key = self.field(name), self.first(known_keys()["fields"][name])[0]
        if value is None:
            raise self.error(key, "is missing", f"give it: its class may have a default, {self.family!r}")
        if not value:
            raise self.error(key, "must be above 0", GIVE)
        return value

    def words(self, key: str, known: str, layers: int) -> list[str]:
        """Return a list of some known words, one for each layer; empty if the file has none."""
        given = self.content.get(key)
        if given is None:
            return []
        if not isinstance(given, list | str) or len(given) != layers:
            raise self.error(key, f"is not one word for each of the {layers} layers", GIVE)
        for word in map(str, given):
            if word not in known.split():
                raise self.error(key, f"{word[:40]!r} is a layer that is not known")
        return [str(word) for word in given]

    def layer_numbers(self, key: str) -> set[int]:
        """Return the layers that a list, or a text of numbers with commas, names."""
        given = self.content.get(key) or []
        words = given.split(",") if isinstance(given, str) else given
        if not isinstance(words, list) or not all(
            re.fullmatch(r"\s*\d{1,7}\s*", str(word), re.ASCII) for word in words
        ):
            raise self.error(key, "is no list of layers", GIVE)
        return {int(word) for word in words}

    def check_keys(self) -> None:
        """Raise an error for an unknown key that may change the shape; note other unknown keys."""
        if self.content.get("is_encoder_decoder") or self.is_family("others"):
            message = f"{self.family[:40]!r} is no decoder-only transformer whose shape is known"
            raise self.error("model_type", message)
        projected = self.content.get("word_embed_proj_dim")
        if projected is not None and projected != self.content.get("hidden_size"):
            raise self.error("word_embed_proj_dim", "differs from hidden_size, which is not known")
        if self.content.get("use_cla"):
            raise self.error("use_cla", "layers that share keys and values are not known")
        about = known_keys()
        used = {key for keys in about["fields"].values() for key in keys} | {*about["also_read"]}
        not_modelled(key for key in about["not_modelled"] if self.content.get(key))
        no_matter, may_matter = ("|".join(about[name]) for name in ("no_matter", "may_matter"))
        unknown = [key for key in self.content if key not in used and key not in about["not_modelled"]]
        unknown = [key for key in unknown if not re.search(no_matter, key.lower())]
        for key in unknown:
            # What is null, 0 or empty is switched off.
            if self.content[key] and re.search(may_matter, key.lower()):
                raise self.error(key, "may change the shape of the model, and is not known")
        not_read(unknown)
        if self.family and not self.is_family("gated") and not self.is_family("ungated"):
            not_read([f"model_type {self.family} (its keys alone are read)"])

    def is_gated(self) -> bool:
        """Return whether feed-forward networks have three matrices, by the family or by the activation."""
        if self.is_family("ungated"):
            return self.content.get("ffn_type") == "mptglu"
        key, value = self.first(ACTIVATIONS)
        if value and not re.search("silu|swish|swiglu|gelu|relu|geglu", str(value)):
            not_read([f"{key} {value}"])
        if not self.is_family("gated") and value not in (None, "silu", "swish", "swiglu"):
            message = f"whether a network with {str(value)[:40]!r} is gated depends on the model, not known"
            raise self.error(key, message)
        return True

    def is_tied(self) -> Any:
        """Return whether the embedding is the output layer, as the file or else the class says."""
        given = self.content.get("tie_word_embeddings")
        if given is not None or not self.family:
            return given or False
        return self.is_family("tied") or not (self.is_family("gated") or self.is_family("ungated"))

    def key_value_heads(self) -> int | None:
        """Return the number of heads of keys and values; None if as many as of queries."""
        # The first Falcons have a count of such heads that their class ignores.
        first_falcon = self.family == "falcon" and not self.content.get("new_decoder_architecture")
        if self.content.get("attn_type") == "multiquery_attention":
            return 1
        if first_falcon or self.family == "gpt_bigcode":
            return 1 if self.content.get("multi_query", True) else None
        return self.field("key_value_heads")

    def feed_forward(self, hidden: int) -> int | None:
        """Return the inner width of a dense layer's feed-forward network; None if the file does not say."""
        given = self.field("feed_forward")
        if given is None and self.is_family("four_times"):
            ratio = self.content.get("expansion_ratio", 4)
            return round(ratio * hidden) if isinstance(ratio, int | float) and 0 < ratio < 100 else None
        # The first Qwen counts both matrices of the gate.
        return given // 2 if self.family == "qwen" and given else given

    def dense_layers(self, layers: int) -> int:
        """Return the number of layers without experts, in a model that has some."""
        found = set(range(self.field("first_experts") or 0, layers))
        last = self.content.get("moe_layer_end_index")
        if isinstance(last, int) and last >= 0:
            found &= set(range(last + 1))
        step = self.field("expert_step") or 1
        found &= set(range(step - 1, layers, step))
        for key in ("moe_layers", "moe_layers_enum"):
            found &= self.layer_numbers(key) or found
        found -= self.layer_numbers("mlp_only_layers")
        if isinstance(self.content.get("moe_layer_freq"), list):
            words = self.words("moe_layer_freq", "0 1", layers)
            found &= {at for at, word in enumerate(words) if word == "1"}
        else:
            found &= set(range(0, layers, self.count("moe_layer_freq") or 1))
        words = self.words("mlp_layer_types", "dense sparse", layers)
        return layers - len(found - {at for at, word in enumerate(words) if word == "dense"})

    def latent(self) -> dict[str, int] | None:
        """Return the widths of multi-head latent attention; None if the model has ordinary attention."""
        if not self.content.get("kv_lora_rank") or self.content.get("use_mla") is False:
            return None
        names = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        widths = [self.count(name) for name in names]
        for name, width in list(zip(names, widths, strict=True))[1:]:
            if width is None:
                raise self.error(name, "is missing", GIVE)
        return {one.name: width or 0 for one, width in zip(fields(LatentAttention), widths, strict=True)}

    def windows(self, layers: int) -> dict[str, float]:
        """Return the tokens of a window, and the number of layers for each layer that has one."""
        words = self.words("layer_types", "full_attention sliding_attention chunked_attention", layers)
        window = self.count("window_size" if self.family == "gpt_neo" else "sliding_window")
        if not window or self.content.get("use_sliding_window") is False:
            return {}
        pattern = self.content.get("sliding_window_pattern")
        every = known_keys()["full_every"].get(self.family, 2 if self.family == "gpt_neo" else 1)
        if words:
            windowed = words.count("sliding_attention")
        elif isinstance(pattern, str):
            # A letter for each layer of a period, as LLLG: L is local (EXAONE 4).
            windowed = round(layers * pattern.count("L") / max(len(pattern), 1))
        else:
            every = self.count("sliding_window_pattern") or every
            windowed = layers - layers // every if every > 1 else layers
        if self.content.get("use_sliding_window") and not words:
            windowed = layers - min(self.count("max_window_layers") or 0, layers)
        return {"window": window, "window_every": layers / windowed} if windowed else {}

    def hybrid(self, layers: int) -> dict[str, Any]:
        """Return what a pattern of Mamba-2 (M), attention (*), dense (-) and expert (E) layers says."""
        pattern = self.words("hybrid_override_pattern", "M * - E", layers)
        names = ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups")
        for name in names:
            if pattern and self.count(name) is None:
                raise self.error(name, "is missing", GIVE)
            if not pattern and self.content.get(name):
                raise self.error(name, "is of Mamba layers, but there is no hybrid_override_pattern")
        if not pattern:
            return {}
        widths = dict(zip(("heads", "head_dim", "state", "groups"), map(self.count, names), strict=True))
        return {
            "attention_layers": pattern.count("*"),
            "dense_layers": pattern.count("-"),
            "mamba": {"layers": pattern.count("M"), **widths},
        }

    def expert_keys(self, layers: int) -> dict[str, Any]:
        """Return the fields of a shape that are about experts; none if the model has none."""
        if not self.field("experts"):
            return {}
        names = ("experts", "experts_per_token", "expert_feed_forward", "shared_experts")
        keys: dict[str, Any] = {name: self.field(name) for name in (*names, "expert_hidden")}
        width = keys["shared_expert_feed_forward"] = self.field("shared_expert_feed_forward")
        self.read_needed("experts_per_token")
        # Llama 4's expert layers have one shared expert, of which no key tells.
        if (width and not keys["shared_experts"]) or self.content.get("intermediate_size_mlp"):
            keys["shared_experts"] = 1
        if self.content.get("use_mixed_mlp_moe") is False:
            keys["shared_experts"] = None
        return keys | {"dense_layers": self.dense_layers(layers)}

    def shape_keys(self) -> dict[str, Any]:
        """Return the fields of a `TransformerShape`, without those that the model does not have."""
        self.check_keys()
        keys: dict[str, Any] = {
            name: self.read_needed(name) for name in ("hidden", "layers", "heads", "vocabulary")
        }
        layers = keys["layers"]
        self.words("attn_type_list", "1", layers)
        keys |= {"gated": self.is_gated(), "tied": self.is_tied(), "head_dim": self.field("head_dim")}
        keys |= {"key_value_heads": self.key_value_heads(), "predicted_ahead": self.field("predicted_ahead")}
        if latent := self.latent():
            # A file's counts of heads and their width are then not those of grouped-query attention.
            keys |= {"latent": latent, "key_value_heads": None, "head_dim": None}
        keys |= self.windows(layers) | self.expert_keys(layers) | self.hybrid(layers)
        keys["feed_forward"] = self.feed_forward(keys["hidden"])
        if keys["feed_forward"] is None and (not keys.get("experts") or keys.get("dense_layers")):
            raise self.error("intermediate_size", "is missing", GIVE)
        return {key: value for key, value in keys.items() if value is not None}
