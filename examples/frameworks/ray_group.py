"""Workers of Ray Train as the group of a loader, where torch.distributed is not in use.

loader = EchoLoader(shard, 2, batch_size=64, steps_per_epoch=100, group=RayGroup())
"""

import asyncio

import ray
import ray.train
from ray.train.collective import broadcast_from_rank_zero


@ray.remote(num_cpus=0)
class Meeting:
    """Gathers the values of all workers."""

    def __init__(self, size):
        self.size, self.rounds = size, {}

    async def gather(self, number, rank, value):
        values, complete = self.rounds.setdefault(number, ({}, asyncio.Event()))
        values[rank] = value
        if len(values) == self.size:
            del self.rounds[number]
            complete.set()
        await complete.wait()
        return [values[rank] for rank in range(self.size)]


class RayGroup:
    """See pyecho.torch.distributed.Group. Ends with the worker of rank 0."""

    def __init__(self):
        context = ray.train.get_context()
        self.rank, self.size = context.get_world_rank(), context.get_world_size()
        meeting = Meeting.remote(self.size) if self.rank == 0 else None
        self.meeting = broadcast_from_rank_zero(meeting)
        self.rounds = 0

    def gather(self, values):
        self.rounds += 1
        return ray.get(self.meeting.gather.remote(self.rounds, self.rank, values))
