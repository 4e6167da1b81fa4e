from typing import type_check_only

@type_check_only
class _Pybind11Type(type): ...

class GatherRace(metaclass=_Pybind11Type):
    def __init__(
        self,
        *,
        row_bytes: int,
        batch_size: int,
        shuffle_buffer: int,
        factor: int,
        fresh: int,
        threads: int,
    ) -> None: ...
    def memcpy_seconds(self, threads: int) -> float: ...
    def echo_seconds(self) -> float: ...

def hand_over_ns(stage: str, count: int, pause_ns: int) -> list[int]: ...
