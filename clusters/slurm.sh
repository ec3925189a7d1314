#!/bin/bash
# Training on several nodes, which goes on when its time is up:
#
#     sbatch clusters/slurm.sh --epochs=100 --batch-size=4096
#
# Options of d2l_mgpu.train stand after the file. Options of sbatch stand before it, and
# replace those below: sbatch --nodes=2 clusters/slurm.sh

#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1     # one agent on each node
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=12:00:00
#SBATCH --signal=B:USR1@120     # to this script only, two minutes before the time is up
#SBATCH --requeue               # Slurm itself starts the job again when a node fails
#SBATCH --open-mode=append      # one file for the output of all starts

processes=${SLURM_GPUS_ON_NODE:-1}   # on each node, one for each GPU
export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / processes))   # torchrun would choose 1
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=100   # seconds to save; less than the 120
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# SIGTERM to all that srun has started, but not to this script. (A SIGTERM to srun kills
# at once.)
trap 'time_is_up=yes; scancel --signal=TERM "$SLURM_JOB_ID"' USR1

srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=0 \
    torchrun --nnodes="$SLURM_NNODES" --nproc-per-node="$processes" --max-restarts=3 \
    --rdzv-backend=c10d --rdzv-endpoint="$first:29400" --rdzv-id="$SLURM_JOB_ID" \
    -m d2l_mgpu.train --checkpoint-dir="$HOME/job-$SLURM_JOB_ID" "$@" &
training=$!

wait "$training"                # until the training ends or the trap was run
code=$?
if [[ $time_is_up ]]; then
    wait "$training"            # until it has saved
    code=$?
    if ((code != 0)); then      # there is more to do; 0: the last step was taken
        scontrol requeue "$SLURM_JOB_ID"
    fi
fi
exit "$code"                    # any other failure is not repeated
