"""TorchRL's masked PPO on `Burst-16`: python examples/recipe_torchrl.py [CPU seconds]."""

import sys
import time

import gymnasium
import numpy as np
import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.data import Bounded, Composite
from torchrl.envs import DTypeCastTransform, GymWrapper, TransformedEnv
from torchrl.envs.libs.gym import default_info_dict_reader
from torchrl.modules import MaskedCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import clustergym  # noqa: F401 - registers the environments

cpu_s = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
torch.set_num_threads(1)
torch.manual_seed(0)
kwargs = {"observation": "flat", "rows": 12, "baseline": "srtf", "split": "train", "traces": 64}
single = gymnasium.make("ClusterGym/Burst-16-v0", **kwargs)
seen, actions = single.observation_space.shape[0], int(single.action_space.n)
wrapped = GymWrapper(single, categorical_action_encoding=True)
spec = Composite(action_mask=Bounded(0, 1, (actions,), dtype=torch.int8))
wrapped.set_info_dict_reader(default_info_dict_reader(["action_mask"], spec=spec))
wrapped.set_seed(0)
env = TransformedEnv(wrapped, DTypeCastTransform(torch.int8, torch.bool, in_keys=["action_mask"]))
policy = nn.Sequential(
    nn.Linear(seen, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, actions)
)
worth = nn.Sequential(nn.Linear(seen, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
actor = ProbabilisticActor(
    TensorDictModule(policy, in_keys=["observation"], out_keys=["logits"]),
    in_keys={"logits": "logits", "mask": "action_mask"}, spec=env.action_spec, return_log_prob=True,
    distribution_class=MaskedCategorical,
)  # fmt: skip
critic = ValueOperator(worth)
loss_of = ClipPPOLoss(actor, critic, entropy_coeff=0.003, normalize_advantage=True)
advantages = GAE(gamma=1.0, lmbda=0.98, value_network=critic)
adam = torch.optim.Adam(loss_of.parameters(), lr=7e-4)
began_s, next_s, returns = time.process_time(), 0.0, []
while (spent_s := time.process_time() - began_s) < cpu_s:
    episodes = []
    while sum(map(len, episodes)) < 2000:
        with torch.no_grad():
            episodes.append(advantages(env.rollout(10_000, actor)))
        returns.append(float(episodes[-1]["next", "reward"].sum()))
    if spent_s >= next_s:
        next_s += cpu_s / 6
        print(f"{spent_s:.0f} CPU-s: return {np.mean(returns[-20:]):+.3f} h", flush=True)
    batch = torch.cat(episodes)
    for part in [part for _ in range(4) for part in torch.randperm(len(batch)).split(256)]:
        losses = loss_of(batch[part])
        adam.zero_grad()
        sum(value for name, value in losses.items() if name.startswith("loss_")).backward()
        nn.utils.clip_grad_norm_(loss_of.parameters(), 0.5)
        adam.step()
