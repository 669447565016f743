#!/bin/bash
# Harbor takes the reward from /logs/verifier/reward.json. The policy runs as nobody, who may not write there or read the seeds.
chmod -R go= /tests
mkdir -p /logs/verifier
rm -f /logs/verifier/*.json
python -m clustergym evaluate --policy-file /app/policy.py --task /tests/held-out.yaml --mode test --user nobody \
  --json /logs/verifier/evaluation.json
python /tests/write_reward.py /logs/verifier
