#!/bin/bash
cp "$(dirname "$0")/policy.py" /app/policy.py
