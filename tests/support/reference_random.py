"""The random numbers of pyecho in plain Python (csrc/core/random.hpp)."""

MASK = 2**64 - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def mix64(z: int) -> int:
    """SplitMix64's finaliser."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def stream_key(seed: int, epoch: int, stream: int) -> int:
    of_seed = mix64((seed + GOLDEN_GAMMA) & MASK)
    of_epoch = mix64((of_seed + epoch + GOLDEN_GAMMA) & MASK)
    return mix64((of_epoch + stream * GOLDEN_GAMMA) & MASK)


def unit_at(key: int, counter: int) -> float:
    """The counter-th number in [0, 1) of a stream."""
    return (mix64((key + (counter + 1) * GOLDEN_GAMMA) & MASK) >> 11) * 2.0**-53


def rotated_left(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & MASK


class Xoshiro256:
    """xoshiro256**, with uniform draws below a bound."""

    def __init__(self, key: int) -> None:
        self.state = [mix64((key + (word + 1) * GOLDEN_GAMMA) & MASK) for word in range(4)]

    def next(self) -> int:
        s = self.state
        result = (rotated_left((s[1] * 5) & MASK, 7) * 9) & MASK
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotated_left(s[3], 45)
        return result

    def below(self, bound: int) -> int:
        """Lemire's method: the high half of a product, redrawn if its low half would cause bias."""
        refused_below = (2**32 - bound) % bound
        while True:
            product = (self.next() >> 32) * bound
            if product % 2**32 >= refused_below:
                return product >> 32
