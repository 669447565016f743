#!/usr/bin/env bash
# Makes the project's own entries of a board and its pages: bash leaderboards/add_entries.sh BOARD [WORKERS]
# Cells that were run on this version of the board are kept, those that are missing are run: a stopped one goes on.
# After `freeze BOARD --next-version` that is every cell of every entry.
set -euo pipefail
board=$1 workers=${2:-1}
add() { python -m clustergym.leaderboard add --workers "$workers" --title "$2" "$board" "$1" "${@:3}"; }
known() { python -m clustergym.leaderboard best-known "$board" --workers "$workers" "$@"; }
render() { python -m clustergym.leaderboard render "$board"; }
stopping() { # A policy as it is, and with options for whom it stops and whether it gives notice.
  add "$1" "$2" "${@:3}"
  add "$1-cheapest" "$2, cheapest victim" "${@:3}" policy.victims=cheapest
  add "$1-notice" "$2, notice" "${@:3}" policy.notice=cheaper
  add "$1-both" "$2, cheapest victim and notice" "${@:3}" policy.victims=cheapest policy.notice=cheaper
}

if [[ $board == placement ]]; then # Its entries are placers.
  add arnold 'Arnold' placer=arnold
  add arnold-moving 'Arnold, moving jobs' placer=arnold placer.defragment_s=3600
  add best-fit 'best fit' placer=best-fit
  add buddy 'buddy' placer=buddy
  add buddy-still 'buddy, moving none' placer=buddy placer.defragment_s=null
  add gpu-packing 'GPU packing' placer=gpu-packing
  add learned-placer 'learned placer' placer=learned
  add minipod 'minipods, best fit' placer=minipod
  add random-fit 'random fit' placer=random-fit
  add round-robin 'round robin' placer=round-robin
  add topology-aware 'topology-aware bisection' placer=topology-aware
  render
  exit
fi

if [[ $board == sharing ]]; then # Its entries are a policy and a placer.
  learned=(placer=learned placer.checkpoint=sharing)
  backfill=(policy=fcfs policy.backfill=aggressive)
  for placer in fgd best-fit gpu-packing gpu-clustering dot-product random-fit; do
    add "sjf-$placer" "SJF, $placer" policy=sjf placer=$placer
  done
  add sjf-learned 'SJF, learned placer' policy=sjf "${learned[@]}"
  add backfill-learned 'FCFS with backfill, learned placer' "${backfill[@]}" "${learned[@]}"
  add backfill-fgd 'FCFS with backfill, fgd' "${backfill[@]}" placer=fgd
  add fcfs-random-fit 'FCFS, random fit' policy=fcfs placer=random-fit
  add srtf-learned 'SRTF, learned placer' policy=srtf "${learned[@]}"
  add srtf-fgd 'SRTF, fgd' policy=srtf placer=fgd
  render
  exit
fi

if [[ $board == tenants ]]; then # Policies without quotas, under quotas, and under quotas by other rules.
  add fcfs 'FCFS' policy=fcfs
  add srtf 'SRTF' policy=srtf
  add random 'random' policy=random
  add ares-work-conserving 'Ares, work-conserving' policy=ares policy.work_conserving=true
  add learned 'learned auction' policy=learned
  add kai 'KAI' policy=kai
  stopping kueue 'Kueue' policy=kueue policy.fair_sharing=true policy.reclaim_within_cohort=any policy.within_cluster_queue=lower_priority
  add capacity 'Volcano and YARN, capacity' policy=capacity
  add slurm-multifactor 'Slurm, multifactor' policy=slurm-multifactor
  quotas() { add "quotas-$1" "Quotas, $2" policy=quotas "policy.within='$3'" "${@:4}"; }
  quotas fcfs 'FCFS' fcfs
  quotas srtf 'SRTF' srtf
  quotas tiresias 'Tiresias' tiresias
  quotas arena 'Arena' arena
  quotas sia 'Sia' sia
  stopping quotas-stop-fcfs 'Quotas, FCFS, stopping jobs' policy=quotas policy.reclaim=stop
  stopping quotas-ares-work-conserving 'Quotas, Ares, work-conserving' policy=quotas "policy.within='ares work_conserving=true'"
  quotas learned 'learned auction' learned
  quotas learned-fair 'learned auction for fairness' 'learned checkpoint=fair'
  quotas capacity-fcfs 'FCFS, by capacity' fcfs policy.division=capacity
  quotas capacity-srtf 'SRTF, by capacity' srtf policy.division=capacity
  quotas capacity-ares-work-conserving 'Ares, work-conserving, by capacity' 'ares work_conserving=true' policy.division=capacity
  quotas capacity-learned 'learned auction, by capacity' learned policy.division=capacity
  quotas stop-ares-work-conserving 'Ares, work-conserving, stopping jobs' 'ares work_conserving=true' policy.reclaim=stop
  known --evaluations 40 # Its episodes are not compiled: stopped jobs lose work.
  render
  exit
fi

if [[ $board == llm-2026 ]]; then # Of each policy that may stop jobs or move them: as it is, and with options for that.
  backfill=(policy=fcfs policy.backfill=aggressive)
  add fcfs 'FCFS' policy=fcfs
  add fcfs-backfill 'FCFS with backfill' "${backfill[@]}"
  add fcfs-backfill-moves 'FCFS with backfill, moves' "${backfill[@]}" policy.moves_per_hour=8
  add random 'random' policy=random
  add sjf 'SJF' policy=sjf
  add srtf 'SRTF' policy=srtf
  add tiresias 'Tiresias' policy=tiresias
  add gandiva 'Gandiva, guarded' policy=gandiva policy.guard=true
  add lucid 'Lucid' policy=lucid
  add themis 'Themis, guarded' policy=themis policy.guard=true
  add allox 'AlloX' policy=allox
  add gavel-turns 'Gavel, max-min fairness, guarded' policy=gavel policy.guard=true
  add optimus 'Optimus, guarded' policy=optimus policy.guard=true
  add elasticflow-ls 'ElasticFlow-LS' policy=elasticflow-ls
  add ares 'Ares' policy=ares
  add ares-work-conserving 'Ares, work-conserving' policy=ares policy.work_conserving=true
  add sia 'Sia' policy=sia
  add pollux 'Pollux' policy=pollux
  add hesrpt 'heSRPT, guarded' policy=hesrpt policy.guard=true
  add arena 'Arena' policy=arena
  add crius 'Crius' policy=crius
  add learned-none 'learned auction, without speeds' policy=learned policy.checkpoint=none
  add learned-bootstrap 'learned auction, bootstrap' policy=learned policy.checkpoint=bootstrap
  # Learned auctions that saw no traces like the boards'.
  add learned-none-newtrace 'learned auction, without speeds, trained on newTrace' policy=learned policy.checkpoint=none-newtrace
  add learned-bootstrap-newtrace 'learned auction, bootstrap, trained on newTrace' policy=learned policy.checkpoint=bootstrap-newtrace
  add learned-profiled-newtrace 'learned auction, profiled, trained on newTrace' policy=learned policy.checkpoint=profiled-newtrace
  add learned-newtrace 'learned auction, data-parallel, trained on newTrace' policy=learned policy.checkpoint=data-parallel-newtrace
  stopping kueue 'Kueue' policy=kueue policy.reclaim_within_cohort=any
  stopping quotas 'Quotas, FCFS' policy=quotas policy.reclaim=stop
  changes=(--types 0 --weights 1 --step 0.3) # Of weights alone, by large steps: its jobs are many.
  known --cells without-failures --evaluations 300 "${changes[@]}"
  known --cells with-failures --evaluations 30 "${changes[@]}"
  render
  exit
fi

add fcfs 'FCFS' policy=fcfs
add sjf 'SJF' policy=sjf
add srtf 'SRTF' policy=srtf
add las 'LAS' policy=las
add random 'random' policy=random
add tiresias 'Tiresias' policy=tiresias
add gandiva 'Gandiva, guarded' policy=gandiva policy.guard=true
add lucid 'Lucid' policy=lucid
add themis 'Themis, guarded' policy=themis policy.guard=true
add allox 'AlloX' policy=allox
add gavel 'Gavel, max-min fairness' policy=gavel
add optimus 'Optimus, guarded' policy=optimus policy.guard=true
add elasticflow-ls 'ElasticFlow-LS' policy=elasticflow-ls
add ares 'Ares' policy=ares
add ares-work-conserving 'Ares, work-conserving' policy=ares policy.work_conserving=true
add hesrpt 'heSRPT, guarded' policy=hesrpt policy.guard=true
add arena 'Arena' policy=arena
add crius 'Crius' policy=crius
add learned-none 'learned auction, without speeds' policy=learned policy.checkpoint=none
add learned 'learned auction' policy=learned
add learned-bootstrap 'learned auction, bootstrap' policy=learned policy.checkpoint=bootstrap
add sia 'Sia' policy=sia
add gavel-max-sum 'Gavel, maximum throughput' policy=gavel policy.objective=max_total_throughput
add arena-tuned 'Arena, our parameters' policy=arena-tuned
add learned-data-parallel 'learned auction, trained with its price' policy=learned policy.checkpoint=data-parallel
add learned-profiled 'learned auction, profiled' policy=learned policy.checkpoint=profiled
add pollux 'Pollux' policy=pollux
if [[ $board == deadline ]]; then # The other boards have no deadlines.
  add elasticflow 'ElasticFlow' policy=elasticflow
  add arena-deadline 'Arena, deadlines' policy=arena policy.objective=deadline
  add learned-deadline 'learned auction for deadlines' policy=learned policy.checkpoint=deadline
fi
if [[ $board == faults ]]; then
  overtaking=(policy=arena policy.opportunistic=true policy.overtaking=any policy.span=2)
  add arena-notice 'Arena, notice' policy=arena policy.notice=cheaper
  add arena-overtaking 'Arena, overtaking' "${overtaking[@]}"
  add arena-overtaking-notice 'Arena, overtaking, notice' "${overtaking[@]}" policy.notice=cheaper
  add learned-faults 'learned auction, trained with failures' policy=learned policy.checkpoint=faults
fi
if [[ $board == fair ]]; then
  add learned-fair 'learned auction for fairness' policy=learned policy.checkpoint=fair
fi
if [[ $board == faults ]]; then # Its episodes are not compiled.
  known --evaluations 100
else
  known --evaluations 1500
fi
render
