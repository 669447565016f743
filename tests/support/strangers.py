"""Made-up rows, keys and words for valid files of other people, and what is known of each reader."""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

WORD = "xq_made_up"
NAMES = """
figures figure-keys
arena-memory board checkpoint checkpoint-schema
checkpoint-weights config decisions entry entry-logs events gzip journal jobs
live-scripts network network-weights openb-orders oracle-cache oracle-data override-folder placer
placer-weights policy-parameters program result result-cluster result-config result-key schedule sharing
sealed-entry sharing-weights timeline trace-auto trace-provenance training-history twin-policy
twin-shadow
"""
OWN = frozenset(NAMES.split())
"""Files that this project writes itself, that have no keys, or that another reader of the list is given."""
BINARY = frozenset({"trace-slurm-archive"})
"""Files of which no text can be changed."""
KEYED_LINES: Mapping[str, str] = {"slurm-config": f"{WORD} = 1"}
"""Reader of lines with a key each -> a line with a stranger."""
TEXTS: Mapping[str, tuple[str, ...]] = {
    "hugging-face": (
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,'
        ' "intermediate_size": 256, "vocab_size": 1000, "hidden_act": "silu", "rms_norm_eps": 1e-6}',
    ),
    "throughput": (
        "id,model,gpu_type,gpus,tokens_per_s_per_gpu,precision,global_batch_sequences\n"
        "a,llama3-8B,H100-80,8,9000,bf16,64\n",
    ),
    "offers": ("time_s,product,usd_per_gpu_hour,nodes\n0,spot,1.5,2\n3600,spot,2.0,1\n",),
    "oracle-placements": ("exec_plan,placement,iter_time\nga,8,0.5\n",),
    "trace-openb": (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time\n"
        "p0,4000,8192,1,500,,0,60,5\np1,4000,8192,1,1000,T4,3,90,9\n",
    ),
}
"""Valid files of readers that have none among the regressions."""
WITHOUT: Mapping[tuple[str, str], str] = {
    ("trace-swf", "key"): "columns have no names",
    ("trace-gavel", "key"): "columns have no names",
    ("trace-pai", "key"): "columns have no names",
    ("pairs-gavel", "key"): "each key is a name of GPUs or of a job",
    ("live-script", "key"): "the whole script is handed to Slurm",
    ("live-script", "row"): "the whole script is handed to Slurm",
    ("trace-slurmdbd", "row"): "what inserts no jobs is the database's",
    ("trace-slurmdbd", "key"): "Slurm's table has dozens of columns, which change with its version",
    ("queues", "row"): "each key is the name of a queue",
}
"""(reader, stranger) -> why a valid file has no room for such a stranger."""
EXPECTED: Mapping[str, tuple[str, ...]] = {
    "kueue-rules": ("not modelled: quota of cpu",),
    "slurm-config": ("not modelled: SchedulerParameters default_queue_depth",),
    "trace-sacct": ("left out 1 job: job step", "left out 1 job: never ran"),
    "trace-slurmdbd": ("left out 1 job: never ran",),
    "twin-queue": (
        "not modelled: held, dependent and delayed jobs, as there is no column REASON (print %r)",
    ),
    "trace-acme": ("left out 1 job: CPU job", "left out 1 job: never ran"),
    "trace-alibaba-2025": ("left out 2 jobs: CPU instance",),
    "trace-kueue": ("left out 1 job: never ran",),
    "trace-supercloud": (
        *("left out 1 job: CPU job", "left out 1 job: never ran"),
        "left out 1 job: without a count of its GPUs",
    ),
    "trace-swf": (
        *("left out 1 job: never ran", "left out 2 jobs: part of a checkpointed job"),
        *("left out 1 job: ran 0 s", "left out 1 job: without processors"),
    ),
}
"""What valid files contain on purpose that is left out."""
TOKENS: Mapping[str, tuple[str, str]] = {
    "trace-acme": ("COMPLETED", WORD),
    "trace-helios": ("COMPLETED", WORD),
    "trace-supercloud": ("^1,u1,3,", f"1,u1,{WORD},"),
    "trace-philly-json": ("Pass", WORD),
    "trace-alibaba-2026": ("HP", WORD),
    "trace-pai": ("Terminated", WORD),
    "trace-durations": ("^0,3600,4", f"0,3600,{WORD}"),
    "trace-swf": ("^(1 105.5 .* 700 -1) 1 ", rf"\1 {WORD} "),
    "trace-gavel": ("^ResNet-18", WORD),
    "trace-kueue": ("reason: Succeeded", f"reason: {WORD}"),
    "kueue-rules": ('"LowerPriority"', f'"{WORD}"'),
    "cluster": ("A40", WORD),
    "pairs-gavel": ('"v100"', f'"{WORD}"'),
    "oracle-table": ("optimal", WORD),
    "switch-failures": ("leaf", WORD),
    "throughput": ("bf16", WORD),
    "hugging-face": ("silu", WORD),
    "trace-sacct": ("COMPLETED", WORD),
    "slurm-config": ("priority/multifactor", WORD),
    "twin-queue": ("RUNNING", WORD),
}
"""Reader -> a word of its valid file, as a regular expression, and a stranger in its place."""


def strangers(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what stranger it is, and the content of a valid file with it."""
    text = content.decode()
    kinds: dict[str, Callable[[str], str | None]] = {"key": _with_key, "row": _with_row}
    if name in KEYED_LINES:
        first, _, rest = text.partition("\n")
        kinds = {"key": lambda text: f"{first}\n{KEYED_LINES[name]}\n{rest}"}
    for kind, change in kinds.items():
        changed = None if (name, kind) in WITHOUT else change(text)
        if changed is not None:
            yield kind, changed.encode()
    if name in TOKENS:
        old, new = TOKENS[name]
        changed = re.sub(old, new, text, count=1, flags=re.M)
        assert changed != text, f"{name} has no {old!r}"
        yield "token", changed.encode()


def _with_key(text: str) -> str | None:
    """Return a text with one more column, or one more key of each mapping of an object's first levels."""
    if text.lstrip()[:1] in ("{", "["):
        return json.dumps(_keyed(json.loads(text)))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    mark = "|" if "|" in lines[0] else ","
    if mark in lines[0] and ":" not in lines[0]:
        return "\n".join([f"{lines[0]}{mark}{WORD}", *(f"{line}{mark}1" for line in lines[1:])]) + "\n"
    return str(yaml.safe_dump(_keyed(yaml.safe_load(text)), sort_keys=False))


def _keyed(value: Any) -> Any:
    if isinstance(value, list):
        return [_keyed(value[0]), *value[1:]]
    if "items" in value:
        return {**value, "items": [{**entry, WORD: {"a": 1}} for entry in value["items"]]}
    return {**value, WORD: {"a": 1}}


def _with_row(text: str) -> str | None:
    """Return a table with one more row, each cell of which is a stranger; None if the text is no table."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    mark = "|" if "|" in lines[0] else next((mark for mark in ("\t", ",", " ") if mark in lines[-1]), "")
    if text.lstrip()[:1] in ("{", "[") or ":" in lines[0].split(",")[0] or not mark:
        return None
    width = len(next(csv.reader([lines[-1]], delimiter=mark)))
    return "\n".join([*lines, mark.join([WORD] * width)]) + "\n"
