#!/bin/bash
# One training as a Slurm job, watched as one run (docs/cluster.md): sbatch --nodes 2 examples/slurm/train.sh
# Each node has one task, whose number is what --node says. /shared is a directory that all nodes have, and yours to name.
#SBATCH --job-name=train
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append

# A job that Slurm requeues (preempted, its node lost, `scontrol requeue`) keeps its number, and so its run: it is started again
# as the run's next attempt, which goes on where the checkpoint was saved.
export RUN=/shared/runs/$SLURM_JOB_ID CHECKPOINTS=/shared/checkpoints/$SLURM_JOB_ID
export MASTER=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

srun bash -c 'exec tdbg run --node "$SLURM_NODEID/$SLURM_NNODES" --dir "$RUN" --checkpoint-dir "$CHECKPOINTS" -- \
  torchrun --nnodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" --master-addr "$MASTER" --master-port 29511 train.py'
