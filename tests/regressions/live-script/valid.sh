#!/bin/bash
#SBATCH -A vision -p long -N 2 --gres=gpu:a40:4,nvme:1 --time=1-12:00:00
#SBATCH --signal=B:USR1@90 --reservation=ours  # of the lab
#CLUSTERGYM sizes=4,8

srun python train.py
