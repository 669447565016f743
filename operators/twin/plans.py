"""Capacity plans of a what-if question: a YAML file of what is rented, at what prices and by which rule."""

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from clustergym.benchmark.study.study_file import slug
from clustergym.cluster.spec import ClusterSpec
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import Period
from clustergym.common.parameters import build
from clustergym.common.yaml_file import YamlMapping, read_mapping
from clustergym.scenario.disturbances.capacity import CapacityChoice, ProductChoice, read_offers

PRODUCT = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class PlanChoice(CapacityChoice):
    """The keys of a plan: those of `scenario.capacity`, and the rule of `policy=renting-plan`.

    Attributes
    ----------
    rule : str
    ahead, at_once : tuple of float or None
        Null: the weights of the rule `reactive` of `Capacity`, half of whose GPUs are one's own.
    every_s : float
    """

    rule: Literal["all", "reactive"] = "all"
    ahead: tuple[float, ...] | None = None
    at_once: tuple[float, ...] | None = None
    every_s: Period = 3600.0


class Plan(NamedTuple):
    """What a plan adds to a run.

    Attributes
    ----------
    add : tuple of str
        GPUs that may be rented, as `16xA100`.
    words : tuple of str
        Overrides of what is rented.
    rule : tuple of str
        Overrides of the policy that rents, but for the one within.
    """

    add: tuple[str, ...]
    words: tuple[str, ...]
    rule: tuple[str, ...]

    def policy_words(self, words: Sequence[str]) -> list[str]:
        """Return the overrides of a policy that rents by this plan, given those of the one within."""
        first, *rest = words
        # Without the spaces of lists: parameters are divided at spaces there.
        pairs = (word.removeprefix("policy.").split("=", 1) for word in rest)
        texts = (f"{key}={json.dumps(yaml.safe_load(text), separators=(',', ':'))}" for key, text in pairs)
        within = [first.removeprefix("policy="), *texts]
        return ["policy=renting-plan", f"policy.within={json.dumps(' '.join(within))}", *self.rule]


def read_plans(path: Path, cluster: ClusterSpec, taken: Collection[str]) -> dict[str, Plan]:
    """Read the plans of a file by their names, which are not among those `taken`.

    `cluster` has one's own nodes.
    """
    reader = _Reader(read_mapping(path), cluster)
    names, slugs = reader.source.content, {slug(name).lower() for name in taken}
    for name in names:
        own = slug(str(name)).lower()
        if not own or own in slugs:
            raise reader.error("is called as another, or has no letter", "give another name", name)
        slugs.add(own)
    return {str(name): reader.plan(name) for name in names}


class _Reader:
    """Turns the content of a file into plans, and knows the line of each key for errors."""

    def __init__(self, source: YamlMapping, cluster: ClusterSpec) -> None:
        self.source, self._cluster = source, cluster
        self._per_node = dict(zip(cluster.gpu_types, cluster.gpus_per_node.tolist(), strict=True))

    def error(self, message: str, remedy: str | None, *keys: str) -> InputError:
        field, line = ".".join(map(str, keys)), self.source.line(keys)
        return InputError(message, file=self.source.path, line=line, field=field, remedy=remedy)

    def build(self, made_by: Any, given: Any, *keys: str) -> Any:
        where = ".".join(map(str, keys))
        try:
            return build(made_by, given, where)
        except InputError as error:
            inside = str(error.field).removeprefix(where).strip(".")
            raise self.error(error.message, error.remedy, *keys, *filter(None, inside.split("."))) from error

    def plan(self, name: str) -> Plan:
        plan: PlanChoice = self.build(PlanChoice, self.source.content[name], name)
        if not plan.products:
            raise self.error("rents nothing", "give products, as docs/capacity.md has them", name, "products")
        products = {key: self.product(given, name, key) for key, given in plan.products.items()}
        path = None if plan.path is None else str((self.source.path.parent / plan.path).absolute())
        priced = {} if path is None else read_offers(path, {key: one.nodes for key, one in products.items()})
        for key in products:
            if key not in priced and "price" not in plan.products[key]:
                remedy = "give USD per GPU-hour, or a file of prices"
                raise self.error("has no price", remedy, name, "products", key)
        self.check_rule(plan, name)
        gpus = Counter[str]()
        for product in products.values():
            gpu_type = product.gpu_type or self._cluster.gpu_types[0]
            gpus[gpu_type] += product.nodes * self._per_node[gpu_type]
        capacity = {"products": plan.products, "path": path, "billed_s": plan.billed_s, "seed": plan.seed}
        added = tuple(f"{count}x{gpu_type}" for gpu_type, count in gpus.items())
        words = (f"+scenario.capacity={_as_word(capacity)}",)
        return Plan(added, words, _rule_words(plan, self._cluster))

    def product(self, given: Any, name: str, key: str) -> ProductChoice:
        where = (name, "products", key)
        if not PRODUCT.fullmatch(str(key)):
            raise self.error("is no name of a product", "give letters, digits and hyphens", *where)
        product: ProductChoice = self.build(ProductChoice, given, *where)
        if product.gpu_type not in (None, *self._per_node):
            remedy = f"give one of {', '.join(self._per_node)}"
            raise self.error(f"the cluster has no {product.gpu_type}", remedy, *where, "gpu_type")
        return product

    def check_rule(self, plan: PlanChoice, name: str) -> None:
        if plan.rule == "reactive" and len(self._per_node) > 1:
            message = f"reactive rents GPUs of one type, and the cluster has {len(self._per_node)}"
            raise self.error(message, "leave the rule out: what is offered is rented", name, "rule")
        for key, numbers in (("ahead", 3), ("at_once", 4)):
            weights = getattr(plan, key)
            if weights is not None and (plan.rule != "reactive" or len(weights) != numbers):
                message = f"is not {numbers} weights of the rule reactive"
                raise self.error(message, "see policy=renting", name, key)


def _rule_words(plan: PlanChoice, cluster: ClusterSpec) -> tuple[str, ...]:
    if plan.rule == "all":
        return ("policy.rule=all",)
    from clustergym.envs.capacity.rules import REACTIVE

    # The weights are for each GPU of the size, twice as many as are one's own.
    a, b, c, d, e, f, g = REACTIVE[16]
    size = 2.0 * float(cluster.capacity.sum())
    ahead, at_once = plan.ahead or (a * size, b, c), plan.at_once or (d * size, e, f, -g)
    numbers = f"policy.ahead={list(ahead)}", f"policy.at_once={list(at_once)}"
    return ("policy.rule=reactive", *numbers, f"policy.every_s={plan.every_s}")


def _as_word(value: Any) -> str:
    """Return a value as the configuration's overrides have it, whose keys stand without quotes."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_as_word(of)}" for key, of in value.items()) + "}"
    return json.dumps(value)
