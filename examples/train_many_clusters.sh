#!/usr/bin/env bash
# Train the checkpoint profiled-clusters: jobs like newTrace's on clusters of 16 to 384 GPUs of one to four types.
#
#     bash examples/train_many_clusters.sh outputs/clusters [SEED]
#
# Two trainings, one core, less than 30 minutes: the first from profiled-newtrace, the second from the first, on longer
# windows and shorter jobs besides.
set -euo pipefail
out=$1 seed=${2:-0}
mkdir -p "$out"

generate() { # generate FILES CLUSTER JOBS SEED LONGEST_S
    for i in 0 1 2; do
        [ -e "$out/$1-$i.csv" ] || clustergym trace generate newtrace -o "$out/$1-$i.csv" --jobs "$3" --cluster "$2" \
            --load 1.0 --seed "$4$i" --min-duration-s 60 --max-duration-s "$5"
    done
}

source_of() { # source_of FILES CLUSTER LEAST,MOST jobs of a window
    echo "{scenario: testbed, overrides: ['costs=default','oracle=stack','cluster=$2'], files: ['$out/$1-?.csv'], jobs: [$3]}"
}

train() { # train NAME INITIAL SIGMA GENERATIONS SOURCES
    clustergym train "seed=$seed" processes=1 agent.information=profiled "agent.initial=$2" "agent.sigma=$3" \
        "agent.generations=$4" agent.episodes=12 agent.validation=48 agent.tail=0.1 "agent.without=[queue_double]" \
        "agent.scenarios.load=[0.7,1.5]" "agent.scenarios.restart_factor=[0.5,2.0]" "agent.scenarios.size_error=[0.0,0.3]" \
        agent.scenarios.origin=files "agent.scenarios.traces=[$5]" "output=$out/$1"
}

week_s=604800
for one in arena-16:400 sia-64:800 gavel-48:800 arnold-i:1600; do
    generate "first-${one%:*}" "${one%:*}" "${one#*:}" 41000 "$week_s"
done
for one in arena-16:1200 sia-64:2400 gavel-48:2400 arnold-i:2600 arena-b:4800 arena-384:4800; do
    generate "${one%:*}" "${one%:*}" "${one#*:}" 41000 "$week_s"
done
for one in arena-16:1200 sia-64:2400; do
    generate "${one%:*}-short" "${one%:*}" "${one#*:}" 42000 21600
done

large="$(source_of arena-b arena-b 500,700),$(source_of arena-384 arena-384 500,700)"
first="$(source_of first-arena-16 arena-16 40,80),$(source_of first-sia-64 sia-64 100,160)"
first="$first,$(source_of first-gavel-48 gavel-48 100,160),$(source_of first-arnold-i arnold-i 150,240),$large"
train first profiled-newtrace 0.2 30 "$first"

longer="$(source_of arena-16 arena-16 150,230),$(source_of arena-16-short arena-16 150,230)"
longer="$longer,$(source_of sia-64 sia-64 250,400),$(source_of sia-64-short sia-64 250,400)"
longer="$longer,$(source_of gavel-48 gavel-48 250,400),$(source_of arnold-i arnold-i 300,500),$large"
train profiled-clusters "$out/first/first.safetensors" 0.15 20 "$longer"
