"""Which of the processes of a job this is."""

from __future__ import annotations

import os
import sys

from shardread.errors import ConfigError

# By who starts the processes; the first whose both variables are set says. Of Slurm, the
# number of tasks is the step's, which srun sets: a script that sbatch runs has the job's,
# and is alone all the same.
_LAUNCHERS = (
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPICH", "PMI_RANK", "PMI_SIZE"),
)


def rank_and_world(rank: int | None, world: int | None) -> tuple[int, int]:
    """Return the rank and the world size.

    They are those given; or else of torch.distributed, if that is initialised; or else of
    the environment that torchrun, srun or mpirun has set; or else 0 and 1.

    Raises
    ------
    ConfigError
        Only one is given, or the environment makes no sense.
    """
    if rank is not None and world is not None:
        return int(rank), int(world)
    if world == 1:
        return 0, 1
    if rank is not None or world is not None:
        raise ConfigError("rank and world: give both, or neither to have them found out")
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    for launcher, *names in _LAUNCHERS:
        texts = [os.environ.get(name) for name in names]
        if None in texts:
            continue
        try:
            rank, world = (int(text or "") for text in texts)
        except ValueError:
            rank, world = -1, -1
        if not 0 <= rank < world:
            found = " and ".join(f"{n}={t}" for n, t in zip(names, texts, strict=True))
            raise ConfigError(
                f"rank and world: the environment says {found}, as {launcher} would; give both"
            )
        return rank, world
    return 0, 1
